/* venus/client/memory/progress.h - how much of a large upload is sent, on a terminal.
 *
 * VENUS_PROGRESS=1, which hawser run --progress sets, asks for it: a model of gigabytes takes
 * minutes on a slow line, and the program itself may say nothing meanwhile.
 *
 * Trust: none needed.  Threads: any.  Lifetime: the process. */
#ifndef HAWSER_VENUS_CLIENT_MEMORY_PROGRESS_H
#define HAWSER_VENUS_CLIENT_MEMORY_PROGRESS_H

#include <stddef.h>

/* So many bytes of whole pages were sent. */
void vnc_progress_sent(size_t bytes);
/* Something else is sent: the line goes, if the upload seems to have ended. */
void vnc_progress_rest(void);
/* The line goes. */
void vnc_progress_end(void);

#endif
