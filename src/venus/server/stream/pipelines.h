/* venus/server/stream/pipelines.h - pipelines that are compiled beside the stream.
 *
 * A creation that nobody waits for (a post) becomes a job.  Its ids are known at once and have no
 * handle yet; whoever looks one up waits for that job and no other.  What the job reads stays alive
 * until it is done: a shader module, layout, render pass, cache or pipeline that the client
 * destroys meanwhile loses its id, and is destroyed with the last job that uses it.
 *
 * The client is told when a pipeline's creation has ended (COMPILED).
 *
 * A creation that is answered is executed in its place, as are those that nothing is gained for.
 * Commands that read or merge a pipeline cache, or name an object, come after the jobs that use it,
 * since their result would show the difference; a cache that the program synchronises itself serves
 * one job at a time.
 *
 * Trust: ids are a peer's, looked up by the stream.
 * Threads: the executor's, but for the jobs themselves, which see the driver, the decoded command
 * and the channel.  Lifetime: create/destroy. */
#ifndef HAWSER_VENUS_SERVER_STREAM_PIPELINES_H
#define HAWSER_VENUS_SERVER_STREAM_PIPELINES_H

#include <limits.h>

#include "venus/server/session/objects.h"
#include "venus/server/stream/jobs.h"
#include "vn_commands.gen.h"

enum {
    /* Jobs not done: each holds a decoded command.  Programs make hundreds of pipelines in a row.
     */
    VNS_PIPELINE_JOBS_MAX = 256,
    /* Of their decoded commands together, beside the newest: the credit of what is decoded has gone
     * back to the client.  A create info is kilobytes; modules are objects of their own. */
    VNS_PIPELINE_BYTES_MAX = 64 << 20,
};

/* Instead of a number of threads: a job is done where it is waited for, so that tests know when. */
#define VNS_PIPELINES_LAZY UINT_MAX

struct vns_session;
struct vns_pipelines;

/* threads: 0 for as many as there are cores, 1 to execute all in stream order, or
 * VNS_PIPELINES_LAZY.  0 or -ENOMEM. */
int vns_pipelines_create(unsigned threads, struct vns_pipelines **out) MUST_CHECK;
/* Waits for all jobs; what they made is left as it is. */
void vns_pipelines_destroy(struct vns_pipelines *pipelines);

/* ---- for the stream ---- */

/* The command under way names this object: waits for jobs that make it, or that must be done first.
 */
void vns_pipelines_use(struct vns_session *s, struct vns_thing *thing);
/* Its job, if it became one, is to make this object; a pipeline that needs none is reported. */
void vns_pipelines_created(struct vns_session *s, struct vns_thing *thing);
/* All is decoded and registered, or (rc) failed: begins the job. */
void vns_pipelines_start(struct vns_session *s, int rc);

/* Waits for all jobs, and gives their ids what they made. */
void vns_pipelines_finish(struct vns_session *s);

/* ---- for the hooks ---- */

void vns_pipelines_compute(struct vns_session *s, struct vn_args_vkCreateComputePipelines *a);
void vns_pipelines_graphics(struct vns_session *s, struct vn_args_vkCreateGraphicsPipelines *a);
/* Whether the object's end must wait for jobs: then it is theirs to destroy. */
bool vns_pipelines_defer(struct vns_session *s, uint32_t type, const uint64_t *id);

#endif
