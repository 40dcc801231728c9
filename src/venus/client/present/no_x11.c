/* A build without X11: no such surfaces. */
#include "venus/client/icd.h"
#include "venus/client/present/wsi.h"

const struct vn_entry vn_entries_wsi_x11[] = {
    {NULL, NULL},
};
