/* Set layouts and pipeline layouts; see descriptor_layout.h. */
#include "venus/client/object/descriptor_layout.h"

#include "base/arena.h"
#include "venus/common/rules.h"
#include "vn_client.gen.h"

#include <stdlib.h>

bool vnc_descriptor_writes_buffer(VkDescriptorType type)
{
    switch ((int)type) {
    case VK_DESCRIPTOR_TYPE_STORAGE_BUFFER:
    case VK_DESCRIPTOR_TYPE_STORAGE_BUFFER_DYNAMIC:
    case VK_DESCRIPTOR_TYPE_STORAGE_TEXEL_BUFFER:
    case VK_DESCRIPTOR_TYPE_MUTABLE_VALVE: /* may be any of them */
        return true;
    default:
        return false;
    }
}

static bool has_buffer(VkDescriptorType type)
{
    switch ((int)type) {
    case VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER:
    case VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER_DYNAMIC:
    case VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER:
        return true;
    default:
        return vnc_descriptor_writes_buffer(type);
    }
}

void vnc_set_layout_unref(struct vnc_set_layout *layout)
{
    /* Release and acquire: the last one frees after all others are finished with it. */
    if (!layout || atomic_fetch_sub_explicit(&layout->refs, 1, memory_order_acq_rel) > 1)
        return;
    free(layout->bindings);
    free(layout);
}

static int by_number(const void *a, const void *b)
{
    const struct vnc_binding *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

const struct vnc_binding *vnc_set_layout_binding(const struct vnc_set_layout *layout,
                                                 uint32_t number)
{
    struct vnc_binding key = {.number = number};
    return layout->count ? bsearch(&key, layout->bindings, layout->count, sizeof(key), by_number)
                         : NULL;
}

static VkDescriptorBindingFlags flags_of(const VkDescriptorSetLayoutCreateInfo *info, uint32_t i)
{
    const VkDescriptorSetLayoutBindingFlagsCreateInfo *flags = vn_chain_find(
        info->pNext, VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_BINDING_FLAGS_CREATE_INFO);
    return flags && i < flags->bindingCount ? flags->pBindingFlags[i] : 0;
}

static bool remember_bindings(struct vnc_set_layout *layout,
                              const VkDescriptorSetLayoutCreateInfo *info)
{
    layout->bindings =
        calloc(info->bindingCount ? info->bindingCount : 1, sizeof(*layout->bindings));
    if (!layout->bindings)
        return false;
    layout->count = info->bindingCount;
    for (uint32_t i = 0; i < info->bindingCount; i++) {
        const VkDescriptorSetLayoutBinding *b = &info->pBindings[i];
        layout->bindings[i] = (struct vnc_binding){
            .number = b->binding,
            .type = b->descriptorType,
            .count = b->descriptorCount,
            .immutable = vn_reads_samplers(b->descriptorType) && b->pImmutableSamplers,
            .variable = flags_of(info, i) & VK_DESCRIPTOR_BINDING_VARIABLE_DESCRIPTOR_COUNT_BIT,
            .slots = has_buffer(b->descriptorType) ? b->descriptorCount : 0,
        };
    }
    if (layout->count)
        qsort(layout->bindings, layout->count, sizeof(*layout->bindings), by_number);
    for (uint32_t i = 0; i < layout->count; i++) {
        layout->bindings[i].first_slot = layout->slots;
        layout->slots += layout->bindings[i].slots;
    }
    return true;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_set_layout(VkDevice device,
                                                        const VkDescriptorSetLayoutCreateInfo *info,
                                                        const VkAllocationCallbacks *allocator,
                                                        VkDescriptorSetLayout *out)
{
    VkResult result = vn_vkCreateDescriptorSetLayout(device, info, allocator, out);
    if (result != VK_SUCCESS)
        return result;
    struct vnc_set_layout *layout = VNC_OBJECT(vnc_set_layout, *out);
    layout->refs = 1;
    if (remember_bindings(layout, info))
        return VK_SUCCESS;
    vn_vkDestroyDescriptorSetLayout(device, *out, allocator);
    *out = VK_NULL_HANDLE;
    return VK_ERROR_OUT_OF_HOST_MEMORY;
}

/* ---- support ---- */

struct support {
    VkBool32 supported;
    uint32_t variable; /* the most descriptors of a binding whose count is chosen at allocation */
};

/* The question is the key.  Ids in it, of immutable samplers, are never those of others later. */
static VKAPI_ATTR void VKAPI_CALL get_support(VkDevice device,
                                              const VkDescriptorSetLayoutCreateInfo *info,
                                              VkDescriptorSetLayoutSupport *out)
{
    const VkStructureType type =
        VK_STRUCTURE_TYPE_DESCRIPTOR_SET_VARIABLE_DESCRIPTOR_COUNT_LAYOUT_SUPPORT;
    VkDescriptorSetVariableDescriptorCountLayoutSupport *variable =
        (void *)vn_chain_find(out->pNext, type);
    struct vnc_memo *memo = &VNC_OBJECT(vnc_device, device)->requirements;
    struct wire_enc question;
    wire_enc_init(&question, VNC_MEMO_KEY_BYTES);
    vn_enc_cmd_vkGetDescriptorSetLayoutSupport(&question, device, info, out);
    bool keyed = !wire_enc_error(&question) && !vn_chain_has_others(out->pNext, type);
    const uint8_t *key = keyed ? wire_enc_data(&question) : NULL;
    size_t key_len = keyed ? wire_enc_len(&question) : 0;
    struct support answer;
    if (keyed && vnc_memo_find(memo, key, key_len, &answer, sizeof(answer))) {
        out->supported = answer.supported;
        if (variable)
            variable->maxVariableDescriptorCount = answer.variable;
    } else {
        out->supported = VK_FALSE;
        vn_vkGetDescriptorSetLayoutSupport(device, info, out);
        answer =
            (struct support){out->supported, variable ? variable->maxVariableDescriptorCount : 0};
        if (keyed && answer.supported) /* nothing is known from a lost server */
            vnc_memo_add(memo, key, key_len, &answer, sizeof(answer));
    }
    wire_enc_fini(&question);
}

void vnc_pipeline_layout_fini(struct vnc_pipeline_layout *layout)
{
    for (uint32_t i = 0; i < layout->count; i++)
        vnc_set_layout_unref(layout->sets[i]);
    free(layout->sets);
    free(layout);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_pipeline_layout(VkDevice device,
                                                             const VkPipelineLayoutCreateInfo *info,
                                                             const VkAllocationCallbacks *allocator,
                                                             VkPipelineLayout *out)
{
    VkResult result = vn_vkCreatePipelineLayout(device, info, allocator, out);
    if (result != VK_SUCCESS)
        return result;
    struct vnc_pipeline_layout *layout = VNC_OBJECT(vnc_pipeline_layout, *out);
    layout->sets = calloc(info->setLayoutCount ? info->setLayoutCount : 1, sizeof(*layout->sets));
    if (!layout->sets) {
        vn_vkDestroyPipelineLayout(device, *out, allocator);
        *out = VK_NULL_HANDLE;
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    }
    layout->count = info->setLayoutCount;
    for (uint32_t i = 0; i < info->setLayoutCount; i++) {
        if (info->pSetLayouts[i])
            layout->sets[i] = vnc_set_layout_ref(VNC_OBJECT(vnc_set_layout, info->pSetLayouts[i]));
    }
    return VK_SUCCESS;
}

/* ---- writes without ignored samplers ---- */

bool vnc_writes_init(struct vnc_writes *writes, uint32_t count)
{
    *writes = (struct vnc_writes){.writes = calloc(count ? count : 1, sizeof(*writes->writes)),
                                  .count = count,
                                  .arena = malloc(sizeof(*writes->arena))};
    if (writes->writes && writes->arena) {
        hw_arena_init(writes->arena, SIZE_MAX);
        return true;
    }
    free(writes->writes);
    free(writes->arena);
    return false;
}

void vnc_writes_fini(struct vnc_writes *writes)
{
    if (writes->arena) {
        hw_arena_fini(writes->arena);
        free(writes->arena);
        free(writes->writes);
    }
    *writes = (struct vnc_writes){0};
}

static bool ignores_samplers(const struct vnc_set_layout *layout, const VkWriteDescriptorSet *write)
{
    if (!layout || (write->descriptorType != VK_DESCRIPTOR_TYPE_SAMPLER &&
                    write->descriptorType != VK_DESCRIPTOR_TYPE_COMBINED_IMAGE_SAMPLER))
        return false;
    const struct vnc_binding *binding = vnc_set_layout_binding(layout, write->dstBinding);
    return binding && binding->immutable;
}

static bool clean_write(VkWriteDescriptorSet *write, struct hw_arena *arena)
{
    VkDescriptorImageInfo *images = hw_arena_calloc(arena, write->descriptorCount, sizeof(*images));
    if (!images)
        return false;
    memcpy(images, write->pImageInfo, write->descriptorCount * sizeof(*images));
    for (uint32_t i = 0; i < write->descriptorCount; i++)
        images[i].sampler = VK_NULL_HANDLE;
    write->pImageInfo = images;
    return true;
}

bool vnc_writes_clean(uint32_t count, const VkWriteDescriptorSet *writes,
                      vnc_layout_of_fn *layout_of, const void *user, struct vnc_writes *out)
{
    struct vnc_writes clean = {.writes = (VkWriteDescriptorSet *)(uintptr_t)writes, .count = count};
    uint32_t first = 0;
    while (first < count && !ignores_samplers(layout_of(user, &writes[first]), &writes[first]))
        first++;
    if (first == count) {
        *out = clean;
        return true;
    }
    if (!vnc_writes_init(&clean, count))
        return false;
    memcpy(clean.writes, writes, count * sizeof(*writes));
    for (uint32_t i = first; i < count; i++) {
        if (ignores_samplers(layout_of(user, &writes[i]), &writes[i]) &&
            !clean_write(&clean.writes[i], clean.arena)) {
            vnc_writes_fini(&clean);
            return false;
        }
    }
    *out = clean;
    return true;
}

static const struct vnc_set_layout *same_layout(const void *user, const VkWriteDescriptorSet *write)
{
    (void)write;
    return user;
}

bool vnc_pipeline_layout_clean(VkPipelineLayout handle, uint32_t set, uint32_t count,
                               const VkWriteDescriptorSet *writes, struct vnc_writes *out)
{
    const struct vnc_pipeline_layout *layout = VNC_OBJECT(vnc_pipeline_layout, handle);
    const struct vnc_set_layout *own = set < layout->count ? layout->sets[set] : NULL;
    return vnc_writes_clean(count, writes, same_layout, own, out);
}

const struct vnc_entry vnc_entries_descriptor_layout[] = {
    VNC_ENTRY(vkCreateDescriptorSetLayout, create_set_layout),
    VNC_ENTRY(vkGetDescriptorSetLayoutSupport, get_support),
    VNC_ENTRY(vkCreatePipelineLayout, create_pipeline_layout),
    {NULL, NULL},
};
