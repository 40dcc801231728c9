/* venus/common/protocol.h - what client and server say to each other besides Vulkan commands.
 *
 * One connection is one VkInstance of the program, served by a process of its own.  All messages
 * are on stream 0, so both directions are in order.
 *
 *   OPEN    call   {u32 VN_PROTOCOL, 16 bytes key of stripes, u64 instance id, u64 first physical
 *                   device id, VkInstanceCreateInfo}
 *           answer snapshot, see below
 *   STRIPE  call   {16 bytes key}: this connection becomes the next upload stripe of the session
 *                   whose OPEN names the key (transfer/stripe.h).  The answer is empty.
 *                   {16 bytes key, u32 number}: it takes the place of that one, which was cut
 *   DOOR    call   {}: before OPEN, over a transport whose connections cannot be handed over (ucx).
 *                   The answer is {u16 port, 32 bytes secret}: a session waits for this client on
 *                   that port of the same host, and the secret is the token of the handshake there.
 *                   OPEN follows on that connection
 *   STREAM  post   commands {u32 id, u32 bytes, payload}, executed in order
 *   CALL    call   the same; the answer is that of the last command
 *   STREAM_PACKED, CALL_PACKED     the same, packed (transfer/pack.h)
 *
 * On a Unix socket a descriptor may travel beside a message: with the CALL of a vkAllocateMemory,
 * vkImportSemaphoreFdKHR or vkImportFenceFdKHR that imports it, and with the answer to a
 * vkGet*FdKHR that made it.  The numbers that the commands have in its place say nothing, but that
 * -1 of a sync file is none: the file is signalled.
 *
 * Beside Vulkan's commands, whose ids are hashes, a stream holds operations of our own, with ids
 * below VN_OP_END; the generator refuses a hash among them:
 *
 *   RECORD  {u64 command buffer, commands}
 *           a recording, from vkBeginCommandBuffer to vkEndCommandBuffer; one that does not fit a
 *           message comes in several operations
 *   RECORD_KEPT   the same.  The server keeps the recording until its command buffer is recorded
 *           otherwise or freed: at most VN_KEPT_RECORDING_MAX bytes, and VN_KEPT_RECORDINGS_MAX
 *           with all others
 *   AGAIN   {u64 command buffer}
 *           records again what the server keeps of the command buffer
 *   MAP     {u64 memory}
 *           the program maps the memory: from now on both ends keep a shadow copy.  The server's
 *           bytes become zeros, unless a device could have written them: then the server pushes
 *           what they hold as a delta.  Answered (when called) with i32 VkResult
 *   MAP_NEW {u64 memory}
 *           the same, of memory that nothing was ever bound to: it becomes zeros, whatever devices
 *           do.  What the client has there is the program's, and no push may change it
 *   RENEW   {u64 memory, u64 new}
 *           it was freed, and one of its size and type allocated: the driver's stays
 *   DEMAND_PAGED  {u64 memory}
 *           once, before its MAP or at any time: the client fetches pages of this memory when the
 *           program touches them.  The server keeps no shadow copy; it does not compare what a
 *           device may have written, but says so (DROP), and reads it when the client asks.  Pages
 *           of which a device wrote every byte it may push as they are (PAGES)
 *   FETCH   {u64 memory, u64 offset, u32 bytes}   asks for pages of such memory (FILL)
 *   DELTA   {u64 memory, delta}     bytes that the program wrote (memory/delta.h)
 *   WRITE   {u64 memory, u64 offset, bytes}
 *           what whole pages hold at the program; only where no device can write meanwhile
 *   SPREAD  {u64 memory, u64 offset, u64 bytes}   a WRITE whose bytes come on the stripes
 *   READ    {u32 count, ranges}     push what a device changed there, now.  The answer is empty
 *   SUBMIT  {u64 queue, u64 first, u32 count, count x {u32 ranges, ranges}, command}
 *           a submission to the queue: the command is a vkQueueSubmit, vkQueueSubmit2 or
 *           vkQueueBindSparse with so many batches (1 when it has none, for its fence), or an
 *           UPDATE.  Batch i is number first + i of the queue, counted from 1 without gaps; its
 *           ranges are what the batch can write of mapped memory.  VN_BATCH_QUIET or
 *           VN_BATCH_UNTOLD in place of their number: nobody waits for this batch
 *   UPDATE  {u32 count, count x {u64 buffer, u64 offset, u32 bytes, bytes}}
 *           only in a SUBMIT, of one batch that is UNTOLD or reported: the server writes these
 *           bytes where the program's copies would have put them, in order with all else on the
 *           queue.  The server reads nothing that can change, so little has to wait for an UPDATE
 *           (docs/design/fences.md).  Without any bytes: a submission of nothing but a fence
 *   EARLY   {u64 queue, u64 number}
 *           the client told the program that batches up to this one are done, though they may not
 *           be: nothing that the host can see depends on them.  The server executes what follows
 *           and would disturb them, or counts on them, once they are done
 *   WAIT    {u64 queue, u64 number}
 *           the program believes this batch done, and bytes follow for what it may read
 *   ASK     {u64 queue, u64 number}   somebody waits for this batch after all: report it
 *   RESULTS {u64 queue, u64 number, u64 query pool, u64 use, u32 first, u32 count, u32 values}
 *           before the report of that batch push the results of these queries, of so many values
 *           each; VN_RESULTS_BYTES at most.  Where many are asked for, the server may forget some
 *   HOLD    {u32 count, count x {u32 bytes, name, proof}}
 *           which of these does the upload cache have (transfer/upload.h)?  Answered with count x
 *           u8; the server holds what is 1 until the next HOLD
 *   REUSE   {u64 memory, u64 offset, u32 index}
 *           as WRITE, with what item `index` of the last HOLD names
 *   KEEP    {u64 memory, u64 offset, u32 bytes}   the cache may keep what was written there
 *
 *   a range is {u64 memory, u64 offset, u64 bytes}, in SUBMIT with VN_RANGE_FILLED in bytes where
 *   the batch writes every byte of it, and VN_RANGE_AWAITED where the client wants every byte of
 *   the whole pages in it, changed or not
 *
 * Fences and private data never travel.  The server pushes:
 *
 *   DELTA   {u64 memory, delta}             bytes that a device changed
 *   PAGES   {u64 memory, u64 offset, bytes}
 *           what whole pages hold, of which a device wrote every byte: so the program writes none
 *           of them before it has waited.  Of demand-paged memory: blocks of 64 KiB, the largest
 *           host pages
 *   DROP    {u64 memory, u64 offset, u64 bytes}
 *           whole pages of demand-paged memory that a device may have changed; told again only for
 *           pages that the client got since
 *   FILL    {u64 memory, u64 offset, bytes}   what the pages of a FETCH hold
 *   RESULTS {u64 query pool, u64 use, u32 first, u32 count, count x {values, availability}}
 *           u64 each, as vkGetQueryPoolResults gave them
 *   DONE    {u64 queue, u64 number, i32 VkResult}
 *           all batches up to this one are done, and what the server pushes of their ranges went
 *           before.  A negative result is final, and pushed though nobody waits
 *   FAILED  {u32 command, i32 VkResult, u64 device}
 *           a posted command failed; what it should have created is poisoned, and so is all that
 *           uses it; after another command the device is lost
 *   COMPILED {u64 pipeline}   its creation has ended, well or not
 *   MESSAGE {u32 severity, u32 types, i32 number, str name, str text}   for debug messengers
 *   REGULAR {u64 device, u32 usage, u32 memory types, u64 alignment, u64 grain, u64 size}
 *           buffers with that usage, without flags, for one queue family and with nothing chained
 *           but usages, up to that size, need their size rounded up to the grain, in those types of
 *           the driver, and want no allocation of their own
 *   ADDRESS {u64 memory, u64 address}   a buffer's address is this plus its offset
 *
 * The snapshot answers queries of physical devices without asking again:
 *
 *   u32 instance version, u32 devices; each device:
 *     blob VkPhysicalDeviceProperties2, blob VkPhysicalDeviceFeatures2,
 *     blob VkPhysicalDeviceMemoryProperties2,
 *     u32 count x blob VkQueueFamilyProperties2,
 *     u32 count x {u32 VkFormat, blob VkFormatProperties2},
 *     u32 count x {str extension, u32 version}
 *   a blob is {u32 bytes, vn_enc_out_ of the structure with every chained structure that the
 *   driver fills}; device i has the id that OPEN gave plus i
 *   and behind the devices: u64 key of proofs (transfer/upload.h), 0 where there is no upload
 *   cache; u32 stripes that the session has
 *
 * Trust: both ends check everything.  Threads: none.  Lifetime: constants. */
#ifndef HAWSER_VENUS_COMMON_PROTOCOL_H
#define HAWSER_VENUS_COMMON_PROTOCOL_H

#include "wire/limits.h"

enum {
    VN_PROTOCOL = 17,
    VN_CAPABILITY_PROTOCOL = 0xff, /* of a server's hello: its VN_PROTOCOL; 0: no Vulkan here */

    VN_METHOD_FIRST = 256, /* the layers' ranges of 256: this is ours */
    VN_METHOD_OPEN = VN_METHOD_FIRST,
    VN_METHOD_STREAM,
    VN_METHOD_STREAM_PACKED,
    VN_METHOD_CALL,
    VN_METHOD_CALL_PACKED,
    VN_METHOD_STRIPE,
    VN_METHOD_DOOR,
    VN_METHOD_END = 512,

    VN_PUSH_DELTA = VN_METHOD_FIRST,
    VN_PUSH_DONE,
    VN_PUSH_FAILED,
    VN_PUSH_MESSAGE,
    VN_PUSH_REGULAR,
    VN_PUSH_ADDRESS,
    VN_PUSH_DROP,
    VN_PUSH_FILL,
    VN_PUSH_PAGES,
    VN_PUSH_RESULTS,
    VN_PUSH_COMPILED,

    VN_OP_RECORD = 1,
    VN_OP_MAP,
    VN_OP_DELTA,
    VN_OP_READ,
    VN_OP_SUBMIT,
    VN_OP_EARLY,
    VN_OP_ASK,
    VN_OP_HOLD,
    VN_OP_REUSE,
    VN_OP_KEEP,
    VN_OP_WRITE,
    VN_OP_DEMAND_PAGED,
    VN_OP_FETCH,
    VN_OP_UPDATE,
    VN_OP_RECORD_KEPT,
    VN_OP_AGAIN,
    VN_OP_SPREAD,
    VN_OP_RESULTS,
    VN_OP_MAP_NEW,
    VN_OP_RENEW,
    VN_OP_WAIT,
    VN_OP_END = 256,
};

enum {
    /* A recording past it takes the driver long whatever its client does; llama.cpp's have some
       KiB. */
    VN_KEPT_RECORDING_MAX = 256 << 10,
    VN_KEPT_RECORDINGS_MAX = 32 << 20, /* in a session */
};

enum {
    VN_DEVICES_MAX = 64,     /* of one server; the largest machines hold 16 */
    VN_RANGES_MAX = 1 << 16, /* of one batch; past it the client names whole allocations */
    VN_BATCHES_MAX = 4096,   /* of one SUBMIT; a call with more of them is several */

    /* In place of a batch's number of ranges: not reported until asked for or until a later one
     * is.  UNTOLD: the program counts on it, so the server must be able to wait for it. */
    VN_BATCH_QUIET = -1,
    VN_BATCH_UNTOLD = -2,

    /* A delta and its head in one message; large changes are cut, so that small messages of
     * other threads get through in between. */
    VN_DELTA_BYTES = 1 << 20,

    /* Of one UPDATE: what vkCmdUpdateBuffer takes, and how many. */
    VN_UPDATE_BYTES = 64 << 10,
    VN_UPDATES_MAX = 8,

    VN_FETCH_MAX = 1 << 20, /* bytes of one FETCH; clients ask for a quarter of it at most */

    /* Of one WRITE or PAGES: with its head one chunk of the connection, and still in the CPU's
     * caches when the socket takes it and when it is stored. */
    VN_WRITE_BYTES = (256 << 10) - 4096,

    VN_RESULTS_BYTES = 64 << 10, /* of one RESULTS; 4,096 timestamps */
};

#define VN_RANGE_FILLED (UINT64_C(1) << 63)
#define VN_RANGE_AWAITED (UINT64_C(1) << 62) /* beside VN_RANGE_FILLED */

/* Both ends spin for at most so long before they sleep (base/wait.h): a step of a language model on
 * a GPU, or what a program does between two prompts.  A sleeper learns of the end a tenth of a
 * millisecond late. */
#define VN_SPIN_NS UINT64_C(4000000)

#endif
