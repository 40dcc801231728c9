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
# lavapipe takes half of the time to compile shaders for these vectors, which are all that arm64 has.
export LP_NATIVE_VECTOR_WIDTH=128
exec "$@"
