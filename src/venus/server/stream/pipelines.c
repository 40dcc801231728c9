/* Pipelines beside the stream; see pipelines.h. */
#include "venus/server/stream/pipelines.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "venus/common/commands.h"
#include "venus/common/protocol.h"
#include "venus/server/session/state.h"

struct vns_compile {
    struct vns_job job;
    struct vns_compile *next, **at; /* of those not reaped, oldest first */
    struct vns_session *session;    /* for its channel */
    struct hw_arena arena;          /* of the arguments */
    const struct vns_device *device;
    struct vn_args_vkCreateComputePipelines compute;
    struct vn_args_vkCreateGraphicsPipelines graphics;
    bool is_compute;
    struct vns_thing **uses; /* all that the command named */
    size_t use_count;
};

struct vns_pipelines {
    struct vns_jobs *jobs;
    bool in_order; /* nothing is gained by jobs */
    struct vns_compile *first, **last;
    size_t count;
    size_t bytes; /* that their arguments hold */

    /* The command under way. */
    struct vns_compile *made; /* what it became */
};

int vns_pipelines_create(unsigned threads, struct vns_pipelines **out)
{
    struct vns_pipelines *p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    p->last = &p->first;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (threads == 0)
        threads = cores > 0 ? (unsigned)cores : 1;
    p->in_order = threads == 1;
    if (vns_jobs_create(threads == VNS_PIPELINES_LAZY ? 0 : threads, &p->jobs)) {
        free(p);
        return -ENOMEM;
    }
    *out = p;
    return 0;
}

/* Whoever wants to bind it may be waiting. */
static void tell_compiled(struct vns_session *s, uint64_t id)
{
    uint8_t payload[8];
    wire_store64(payload, id);
    int rc = vns_channel_send(&s->channel, VN_PUSH_COMPILED, payload, sizeof(payload));
    if (rc)
        vns_channel_give_up(&s->channel, rc, "a pipeline cannot be reported");
}

/* ---- the job ---- */

static uint32_t count_of(const struct vns_compile *c)
{
    return c->is_compute ? c->compute.createInfoCount : c->graphics.createInfoCount;
}

static const uint64_t *ids_of(const struct vns_compile *c)
{
    return c->is_compute ? c->compute.ids_pPipelines : c->graphics.ids_pPipelines;
}

static void run(struct vns_job *job)
{
    struct vns_compile *c = CONTAINER_OF(job, struct vns_compile, job);
    struct vn_args_vkCreateComputePipelines *x = &c->compute;
    struct vn_args_vkCreateGraphicsPipelines *g = &c->graphics;
    VkResult result;
    if (c->is_compute)
        result = c->device->driver.vkCreateComputePipelines(
            x->device, x->pipelineCache, x->createInfoCount, x->pCreateInfos, NULL, x->pPipelines);
    else
        result = c->device->driver.vkCreateGraphicsPipelines(
            g->device, g->pipelineCache, g->createInfoCount, g->pCreateInfos, NULL, g->pPipelines);
    if (result < 0)
        vns_session_push_failed(c->session, c->device->id,
                                c->is_compute ? VN_CMD_vkCreateComputePipelines
                                              : VN_CMD_vkCreateGraphicsPipelines,
                                result);
    for (uint32_t i = 0; i < count_of(c); i++)
        tell_compiled(c->session, ids_of(c)[i]);
}

/* ---- the end of a job ---- */

static void destroy_object(const struct vns_thing *thing)
{
    const struct vns_device *device = thing->device;
    const struct vn_driver *d = &device->driver;
    switch (thing->type) {
    case VK_OBJECT_TYPE_SHADER_MODULE:
        d->vkDestroyShaderModule(device->handle, thing->handle, NULL);
        break;
    case VK_OBJECT_TYPE_PIPELINE_LAYOUT:
        d->vkDestroyPipelineLayout(device->handle, thing->handle, NULL);
        break;
    case VK_OBJECT_TYPE_RENDER_PASS:
        d->vkDestroyRenderPass(device->handle, thing->handle, NULL);
        break;
    case VK_OBJECT_TYPE_PIPELINE_CACHE:
        d->vkDestroyPipelineCache(device->handle, thing->handle, NULL);
        break;
    case VK_OBJECT_TYPE_PIPELINE:
        d->vkDestroyPipeline(device->handle, thing->handle, NULL);
        break;
    default:
        assert(!"an object whose end is deferred");
    }
}

static void let_go(struct vns_thing *const *uses, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct vns_thing *thing = uses[i];
        if (--thing->users || !thing->doomed)
            continue;
        destroy_object(thing);
        free(thing);
    }
}

static void discard(struct vns_compile *c)
{
    let_go(c->uses, c->use_count);
    hw_arena_fini(&c->arena);
    free(c->uses);
    free(c);
}

/* The ids get their handles, or stay poisoned. */
static void resolve(struct vns_session *s, const struct vns_compile *c)
{
    const uint64_t *ids = ids_of(c);
    const VkPipeline *handles = c->is_compute ? c->compute.pPipelines : c->graphics.pPipelines;
    for (uint32_t i = 0; i < count_of(c); i++) {
        struct vns_thing *thing = vns_objects_find(&s->objects, ids[i], VK_OBJECT_TYPE_PIPELINE);
        assert(thing && thing->compile == c);
        thing->handle = (void *)handles[i];
        thing->compile = NULL;
    }
}

static void finish(struct vns_session *s, struct vns_compile *c)
{
    struct vns_pipelines *p = s->pipelines;
    vns_jobs_wait(p->jobs, &c->job);
    *c->at = c->next;
    if (c->next)
        c->next->at = c->at;
    else
        p->last = c->at;
    p->count--;
    p->bytes -= c->arena.held;
    resolve(s, c);
    discard(c);
}

void vns_pipelines_finish(struct vns_session *s)
{
    while (s->pipelines->first)
        finish(s, s->pipelines->first);
}

/* What is done, and what is too much. */
static void reap(struct vns_session *s)
{
    struct vns_pipelines *p = s->pipelines;
    struct vns_compile *next;
    for (struct vns_compile *c = p->first; c; c = next) {
        next = c->next;
        if (vns_jobs_is_done(p->jobs, &c->job))
            finish(s, c);
    }
    while (p->first && (p->count >= VNS_PIPELINE_JOBS_MAX || p->bytes > VNS_PIPELINE_BYTES_MAX))
        finish(s, p->first);
}

void vns_pipelines_destroy(struct vns_pipelines *p)
{
    if (!p)
        return;
    vns_jobs_destroy(p->jobs);
    while (p->first) {
        struct vns_compile *c = p->first;
        p->first = c->next;
        hw_arena_fini(&c->arena);
        free(c->uses);
        free(c);
    }
    free(p);
}

/* ---- the command under way ---- */

static bool is_destruction(const struct vns_session *s)
{
    const struct vn_command_info *info = vn_keymap_get(&s->classes, s->command.id);
    return info && info->class == VN_CLASS_DESTROY;
}

/* Whether a command may see or touch an object that jobs use without waiting for them. */
static bool may_share(const struct vns_session *s, const struct vns_thing *thing)
{
    switch (s->command.id) {
    case VN_CMD_vkCreateComputePipelines:
    case VN_CMD_vkCreateGraphicsPipelines:
        return !thing->exclusive;
    case VN_CMD_vkDestroyShaderModule:
    case VN_CMD_vkDestroyPipelineLayout:
    case VN_CMD_vkDestroyRenderPass:
    case VN_CMD_vkDestroyPipelineCache:
    case VN_CMD_vkDestroyPipeline:
        return true; /* deferred; and the device stays */
    case VN_CMD_vkSetDebugUtilsObjectNameEXT:
    case VN_CMD_vkSetDebugUtilsObjectTagEXT:
        return false;
    default:
        return thing->type != VK_OBJECT_TYPE_PIPELINE_CACHE && !is_destruction(s);
    }
}

void vns_pipelines_use(struct vns_session *s, struct vns_thing *thing)
{
    if (thing->compile)
        finish(s, thing->compile);
    /* A hostile client gives one device what is another's: a device's end waits for all jobs. */
    if (s->command.id == VN_CMD_vkDestroyDevice || (thing->users && !may_share(s, thing)))
        vns_pipelines_finish(s);
}

void vns_pipelines_created(struct vns_session *s, struct vns_thing *thing)
{
    if (thing->type == VK_OBJECT_TYPE_PIPELINE) {
        thing->compile = s->pipelines->made;
        if (!thing->compile)
            tell_compiled(s, thing->id);
    }
    thing->exclusive = s->command.exclusive;
}

/* ---- creations ---- */

/* A job for the command, which owns the arguments from here on; NULL where it is to be executed in
 * its place. */
static struct vns_compile *begin(struct vns_session *s)
{
    struct vns_pipelines *p = s->pipelines;
    if (s->exec.reply || s->fault || p->in_order)
        return NULL;
    reap(s);
    struct vns_compile *c = calloc(1, sizeof(*c));
    if (c)
        c->uses = malloc((s->named.count + 1) * sizeof(struct vns_thing *));
    if (!c || !c->uses) {
        free(c);
        return NULL;
    }
    c->job.run = run;
    c->session = s;
    c->device = s->command.device;
    for (size_t i = 0; i < s->named.count; i++) {
        s->named.things[i]->users++;
        c->uses[c->use_count++] = s->named.things[i];
    }
    c->arena = s->arena;
    hw_arena_init(&s->arena, VN_ARENA_MAX);
    p->made = c;
    return c;
}

void vns_pipelines_compute(struct vns_session *s, struct vn_args_vkCreateComputePipelines *a)
{
    struct vns_compile *c = begin(s);
    if (!c) {
        a->ret = s->command.device->driver.vkCreateComputePipelines(
            a->device, a->pipelineCache, a->createInfoCount, a->pCreateInfos, NULL, a->pPipelines);
        return;
    }
    c->is_compute = true;
    c->compute = *a;
    a->ret = VK_SUCCESS;
}

void vns_pipelines_graphics(struct vns_session *s, struct vn_args_vkCreateGraphicsPipelines *a)
{
    struct vns_compile *c = begin(s);
    if (!c) {
        a->ret = s->command.device->driver.vkCreateGraphicsPipelines(
            a->device, a->pipelineCache, a->createInfoCount, a->pCreateInfos, NULL, a->pPipelines);
        return;
    }
    c->graphics = *a;
    a->ret = VK_SUCCESS;
}

/* Before this nobody else sees the arguments, whose outputs are read where ids are registered. */
void vns_pipelines_start(struct vns_session *s, int rc)
{
    struct vns_pipelines *p = s->pipelines;
    struct vns_compile *c = p->made;
    p->made = NULL;
    if (!c)
        return;
    if (rc) { /* the session ends: nobody will look at its ids again */
        discard(c);
        return;
    }
    c->at = p->last;
    *p->last = c;
    p->last = &c->next;
    p->count++;
    p->bytes += c->arena.held;
    vns_jobs_start(p->jobs, &c->job);
}

bool vns_pipelines_defer(struct vns_session *s, uint32_t type, const uint64_t *id)
{
    struct vns_thing *thing = id ? vns_objects_find(&s->objects, id[0], type) : NULL;
    return thing && thing->users;
}
