/* A build without X11: no such surfaces. */
#include "venus/client/icd.h"
#include "venus/client/present/wsi.h"

const struct vnc_entry vnc_entries_wsi_x11[] = {
    {NULL, NULL},
};
