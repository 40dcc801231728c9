#!/bin/sh
# with_software_gpu.sh FIND_VULKAN PROGRAM ... - runs PROGRAM on a Vulkan driver that computes on the
# CPU; 77 where there is none.
find=$1
shift
if ! env=$("$find" --software --env); then
    echo "skipped: no software driver for Vulkan works here"
    exit 77
fi
eval "$env"
exec "$@"
