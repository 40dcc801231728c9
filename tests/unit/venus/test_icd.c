/* What the loader and a program find in the ICD when no server is there. */
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "venus/client/device/servers.h"
#include "venus/client/device/snapshot.h"
#include "venus/client/icd.h"

VKAPI_ATTR VkResult VKAPI_CALL vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version);
VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vk_icdGetInstanceProcAddr(VkInstance instance,
                                                                   const char *name);
VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vk_icdGetPhysicalDeviceProcAddr(VkInstance instance,
                                                                         const char *name);

static char logged[4096];
static int lines;

static void keep_line(void *user, const char *line, size_t len)
{
    (void)user;
    snprintf(logged, sizeof(logged), "%.*s", (int)len, line);
    lines++;
}

static int setup(void **state)
{
    (void)state;
    setenv("VENUS_SERVERS", "unix:/nonexistent/socket", 1);
    hw_log_set_sink(keep_line, NULL);
    lines = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    hw_log_set_sink(NULL, NULL);
    unsetenv("VENUS_SERVERS");
    return 0;
}

#define GLOBAL(command) ((PFN_##command)vk_icdGetInstanceProcAddr(NULL, #command))
#define OF(instance, command) ((PFN_##command)vk_icdGetInstanceProcAddr(instance, #command))

static VkInstance create(uint32_t version, uint32_t count, const char *const *extensions,
                         const void *chain)
{
    VkInstance instance = NULL;
    VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                     .apiVersion = version};
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                 .pNext = chain,
                                 .pApplicationInfo = &application,
                                 .enabledExtensionCount = count,
                                 .ppEnabledExtensionNames = extensions};
    assert_int_equal(GLOBAL(vkCreateInstance)(&info, NULL, &instance), VK_SUCCESS);
    return instance;
}

static void test_versions_of_the_loader(void **state)
{
    uint32_t version = 4;
    (void)state;
    assert_int_equal(vk_icdNegotiateLoaderICDInterfaceVersion(&version),
                     VK_ERROR_INCOMPATIBLE_DRIVER);
    version = 5;
    assert_int_equal(vk_icdNegotiateLoaderICDInterfaceVersion(&version), VK_SUCCESS);
    assert_int_equal(version, 5);
    version = 99;
    assert_int_equal(vk_icdNegotiateLoaderICDInterfaceVersion(&version), VK_SUCCESS);
    assert_int_equal(version, 7);
    assert_non_null(vk_icdGetInstanceProcAddr(NULL, "vk_icdGetPhysicalDeviceProcAddr"));
}

static void test_before_an_instance_only_global_commands_are_there(void **state)
{
    uint32_t version, count = 0, one = 1;
    VkExtensionProperties first;
    (void)state;
    assert_int_equal(GLOBAL(vkEnumerateInstanceVersion)(&version), VK_SUCCESS);
    assert_true(version >= VK_API_VERSION_1_3 && version <= VK_HEADER_VERSION_COMPLETE);
    assert_null(vk_icdGetInstanceProcAddr(NULL, "vkDestroyInstance"));
    assert_null(vk_icdGetInstanceProcAddr(NULL, "vkCmdDraw"));
    PFN_vkEnumerateInstanceExtensionProperties extensions =
        GLOBAL(vkEnumerateInstanceExtensionProperties);
    assert_int_equal(extensions(NULL, &count, NULL), VK_SUCCESS);
    assert_true(count > 1);
    assert_int_equal(extensions(NULL, &one, &first), VK_INCOMPLETE);
    assert_int_equal(one, 1);
    assert_int_equal(extensions("a layer", &count, NULL), VK_ERROR_LAYER_NOT_PRESENT);
}

static void test_no_server_is_an_instance_without_devices(void **state)
{
    uint32_t count = 7;
    (void)state;
    VkInstance instance = create(VK_API_VERSION_1_3, 0, NULL, NULL);
    assert_int_equal(lines, 1);
    assert_non_null(strstr(logged, "/nonexistent/socket"));
    assert_non_null(strstr(logged, "hawser serve")); /* the remedy */
    assert_int_equal(OF(instance, vkEnumeratePhysicalDevices)(instance, &count, NULL), VK_SUCCESS);
    assert_int_equal(count, 0);
    count = 7;
    assert_int_equal(OF(instance, vkEnumeratePhysicalDeviceGroups)(instance, &count, NULL),
                     VK_SUCCESS);
    assert_int_equal(count, 0);
    OF(instance, vkDestroyInstance)(instance, NULL);
}

static void test_an_unreadable_address_is_named(void **state)
{
    (void)state;
    setenv("VENUS_SERVERS", "no-port-here:what", 1);
    VkInstance instance = create(VK_API_VERSION_1_0, 0, NULL, NULL);
    assert_int_equal(lines, 1);
    assert_non_null(strstr(logged, "no-port-here:what"));
    OF(instance, vkDestroyInstance)(instance, NULL);
}

static void test_unknown_extensions_are_refused(void **state)
{
    const char *names[] = {"VK_KHR_display"};
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                 .enabledExtensionCount = 1,
                                 .ppEnabledExtensionNames = names};
    VkInstance instance = NULL;
    (void)state;
    assert_int_equal(GLOBAL(vkCreateInstance)(&info, NULL, &instance),
                     VK_ERROR_EXTENSION_NOT_PRESENT);
    names[0] = "VK_KHR_16bit_storage"; /* of devices */
    assert_int_equal(GLOBAL(vkCreateInstance)(&info, NULL, &instance),
                     VK_ERROR_EXTENSION_NOT_PRESENT);
}

/* A hole in an advertised version or extension is a call of address 0. */
static void test_nothing_that_is_offered_has_a_hole(void **state)
{
    VkInstance instance = create(VK_API_VERSION_1_3, 0, NULL, NULL);
    (void)state;
    for (size_t i = 0; i < vn_command_count; i++) {
        const struct vn_command_info *command = &vn_command_table[i];
        const struct vn_extension_info *extension = vn_extension_find(command->origins[0]);
        bool offered = vnc_icd_in_version(command, vnc_icd_version()) ||
                       (extension && vnc_icd_has_extension(extension));
        if (offered && !vnc_icd_entry(command))
            fail_msg("%s of %s has no function", command->name, command->origins[0]);
    }
    assert_non_null(vk_icdGetInstanceProcAddr(instance, "vkCmdDraw"));
    assert_non_null(vk_icdGetInstanceProcAddr(instance, "vkCmdPushDescriptorSetKHR"));
    assert_ptr_equal(vk_icdGetInstanceProcAddr(instance, "vkBindBufferMemory2KHR"),
                     vk_icdGetInstanceProcAddr(instance, "vkBindBufferMemory2"));
    assert_null(vk_icdGetInstanceProcAddr(instance, "vkNoSuchCommand"));
    assert_null(vk_icdGetInstanceProcAddr(instance, "vkImportSemaphoreWin32HandleKHR"));
    OF(instance, vkDestroyInstance)(instance, NULL);
}

/* What the policy lets us offer and what we have code for are the same, but for surfaces. */
static void test_every_extension_that_may_be_offered_is_complete(void **state)
{
    /* Later registries bring commands that only a newer build has. */
    const bool floor = VK_HEADER_VERSION_COMPLETE <= VK_MAKE_API_VERSION(0, 1, 3, 239);
    (void)state;
    for (size_t i = 0; i < vn_extension_count; i++) {
        const struct vn_extension_info *extension = &vn_extension_table[i];
        if (floor && extension->offered && !vnc_icd_has_extension(extension))
            fail_msg("%s may be offered and is not complete", extension->name);
        if (!extension->offered && !extension->client_only)
            assert_false(vnc_icd_has_extension(extension));
    }
}

static void test_instance_extensions_must_be_enabled(void **state)
{
    const char *names[] = {VK_EXT_DEBUG_UTILS_EXTENSION_NAME};
    (void)state;
    VkInstance without = create(VK_API_VERSION_1_3, 0, NULL, NULL);
    VkInstance with = create(VK_API_VERSION_1_3, 1, names, NULL);
    assert_null(vk_icdGetInstanceProcAddr(without, "vkCreateDebugUtilsMessengerEXT"));
    assert_non_null(vk_icdGetInstanceProcAddr(with, "vkCreateDebugUtilsMessengerEXT"));
    OF(with, vkDestroyInstance)(with, NULL);
    OF(without, vkDestroyInstance)(without, NULL);
}

static void test_the_loader_gets_commands_of_physical_devices_only(void **state)
{
    VkInstance instance = create(VK_API_VERSION_1_3, 0, NULL, NULL);
    (void)state;
    assert_non_null(vk_icdGetPhysicalDeviceProcAddr(instance, "vkGetPhysicalDeviceProperties2"));
    assert_null(vk_icdGetPhysicalDeviceProcAddr(instance, "vkCmdDraw"));
    assert_null(vk_icdGetPhysicalDeviceProcAddr(instance, "vkDestroyInstance"));
    OF(instance, vkDestroyInstance)(instance, NULL);
}

/* ---- messengers ---- */

struct heard {
    int count;
    char text[64];
};

static VKAPI_ATTR VkBool32 VKAPI_CALL hear(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                           VkDebugUtilsMessageTypeFlagsEXT types,
                                           const VkDebugUtilsMessengerCallbackDataEXT *data,
                                           void *user)
{
    struct heard *h = user;
    (void)severity, (void)types;
    h->count++;
    snprintf(h->text, sizeof(h->text), "%s", data->pMessage);
    return VK_FALSE;
}

static void test_a_messenger_hears_what_it_asked_for(void **state)
{
    const char *names[] = {VK_EXT_DEBUG_UTILS_EXTENSION_NAME};
    struct heard heard = {0}, chained = {0};
    VkDebugUtilsMessengerCreateInfoEXT info = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
        .messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
        .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT,
        .pfnUserCallback = hear,
        .pUserData = &chained};
    VkDebugUtilsMessengerCallbackDataEXT data = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CALLBACK_DATA_EXT, .pMessage = "text"};
    VkDebugUtilsMessengerEXT messenger;
    (void)state;
    VkInstance instance = create(VK_API_VERSION_1_3, 1, names, &info);
    PFN_vkSubmitDebugUtilsMessageEXT submit = OF(instance, vkSubmitDebugUtilsMessageEXT);
    info.pUserData = &heard;
    assert_int_equal(
        OF(instance, vkCreateDebugUtilsMessengerEXT)(instance, &info, NULL, &messenger),
        VK_SUCCESS);
    submit(instance, VK_DEBUG_UTILS_MESSAGE_SEVERITY_INFO_BIT_EXT,
           VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT, &data);
    submit(instance, VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
           VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT, &data);
    assert_int_equal(heard.count, 0);
    submit(instance, VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
           VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT, &data);
    assert_int_equal(heard.count, 1);
    assert_string_equal(heard.text, "text");
    assert_int_equal(chained.count, 0); /* hears of creation and destruction only */
    OF(instance, vkDestroyDebugUtilsMessengerEXT)(instance, messenger, NULL);
    submit(instance, VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
           VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT, &data);
    assert_int_equal(heard.count, 1);
    OF(instance, vkDestroyInstance)(instance, NULL);
}

/* A thread is in a callback of the program, which the driver calls under a lock. */
struct stay {
    VkInstance instance;
    PFN_vkSubmitDebugUtilsMessageEXT submit;
    sem_t inside, go;
    int calls;
};

static VKAPI_ATTR VkBool32 VKAPI_CALL hear_and_stay(
    VkDebugUtilsMessageSeverityFlagBitsEXT severity, VkDebugUtilsMessageTypeFlagsEXT types,
    const VkDebugUtilsMessengerCallbackDataEXT *data, void *user)
{
    struct stay *s = user;
    (void)severity, (void)types;
    s->calls++;
    if (strcmp(data->pMessage, "stay") == 0) {
        sem_post(&s->inside);
        sem_wait(&s->go);
    }
    return VK_FALSE;
}

static void say(struct stay *s, const char *text)
{
    VkDebugUtilsMessengerCallbackDataEXT data = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CALLBACK_DATA_EXT, .pMessage = text};
    s->submit(s->instance, VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
              VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT, &data);
}

static void *say_stay(void *arg)
{
    say(arg, "stay");
    return NULL;
}

static void test_locks_are_free_in_a_child(void **state)
{
    enum { CHILD_SECONDS = 240 }; /* one that hangs is killed, and the test fails */
    const char *names[] = {VK_EXT_DEBUG_UTILS_EXTENSION_NAME};
    static struct stay s;
    VkDebugUtilsMessengerCreateInfoEXT info = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
        .messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
        .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT,
        .pfnUserCallback = hear_and_stay,
        .pUserData = &s};
    VkDebugUtilsMessengerEXT messenger;
    pthread_t thread;
    int status;
    (void)state;
    sem_init(&s.inside, 0, 0);
    sem_init(&s.go, 0, 0);
    s.instance = create(VK_API_VERSION_1_3, 1, names, NULL);
    s.submit = OF(s.instance, vkSubmitDebugUtilsMessageEXT);
    assert_int_equal(
        OF(s.instance, vkCreateDebugUtilsMessengerEXT)(s.instance, &info, NULL, &messenger),
        VK_SUCCESS);
    assert_int_equal(pthread_create(&thread, NULL, say_stay, &s), 0);
    sem_wait(&s.inside);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(CHILD_SECONDS);
        say(&s, "go on");
        OF(s.instance, vkDestroyDebugUtilsMessengerEXT)(s.instance, messenger, NULL);
        OF(s.instance, vkDestroyInstance)(s.instance, NULL);
        _exit(s.calls == 2 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    sem_post(&s.go);
    pthread_join(thread, NULL);
    assert_int_equal(s.calls, 1); /* what the child heard is its own */
    OF(s.instance, vkDestroyDebugUtilsMessengerEXT)(s.instance, messenger, NULL);
    OF(s.instance, vkDestroyInstance)(s.instance, NULL);
}

/* ---- servers ---- */

static void test_servers_come_from_the_environment(void **state)
{
    struct rpc_addr found[3];
    (void)state;
    setenv("VENUS_SERVERS", "one:1, unix:/two ,,three:3,four:4", 1);
    assert_int_equal(vnc_servers_from_env(found, 3), 3);
    assert_string_equal(found[0].host, "one");
    assert_string_equal(found[1].path, "/two");
    assert_int_equal(found[2].port, 3);
    assert_int_equal(lines, 1); /* there is no room for the fourth */
    unsetenv("VENUS_SERVERS");
    setenv("VENUS_SERVER_HOST", "::1", 1);
    setenv("VENUS_SERVER_PORT", "77", 1);
    assert_int_equal(vnc_servers_from_env(found, 3), 1);
    assert_string_equal(found[0].host, "::1");
    assert_int_equal(found[0].port, 77);
    unsetenv("VENUS_SERVER_HOST");
    unsetenv("VENUS_SERVER_PORT");
    assert_int_equal(vnc_servers_from_env(found, 3), 1);
    assert_string_equal(found[0].host, "127.0.0.1");
    assert_int_equal(found[0].port, RPC_DEFAULT_PORT);
}

/* ---- snapshots ---- */

static void test_no_cut_of_a_snapshot_is_believed(void **state)
{
    static const uint8_t whole[] = {0, 0, 0, 0, 0, 0,   0,   0, 0, 0, 0, 0, /* three empty blobs */
                                    1, 0, 0, 0, 1, 0,   0,   0, 9,          /* a family */
                                    1, 0, 0, 0, 2, 0,   0,   0, 0, 0, 0, 0, /* a format */
                                    1, 0, 0, 0, 2, 'V', 'K', 3, 0, 0, 0};   /* an extension */
    (void)state;
    for (size_t len = 0; len <= sizeof(whole); len++) {
        struct wire_dec in;
        wire_dec_init(&in, whole, len);
        struct vnc_snapshot *s = vnc_snapshot_parse(&in);
        assert_int_equal(s != NULL, len == sizeof(whole));
        if (s) {
            assert_int_equal(s->family_count, 1);
            assert_int_equal(s->formats[0].format, 2);
            assert_string_equal(s->extensions[0].extensionName, "VK");
        }
        vnc_snapshot_destroy(s);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_versions_of_the_loader),
        TEST(test_before_an_instance_only_global_commands_are_there),
        TEST(test_no_server_is_an_instance_without_devices),
        TEST(test_an_unreadable_address_is_named),
        TEST(test_unknown_extensions_are_refused),
        TEST(test_nothing_that_is_offered_has_a_hole),
        TEST(test_every_extension_that_may_be_offered_is_complete),
        TEST(test_instance_extensions_must_be_enabled),
        TEST(test_the_loader_gets_commands_of_physical_devices_only),
        TEST(test_a_messenger_hears_what_it_asked_for),
        TEST(test_locks_are_free_in_a_child),
        TEST(test_servers_come_from_the_environment),
        TEST(test_no_cut_of_a_snapshot_is_believed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
