#!/bin/sh
# A software driver is found, and the probe agrees when run in the environment that was printed.
# Skips where no driver works and the mirror cannot be reached.
set -eu
find_vulkan=$1
probe=$2
HAWSER_VKPROBE_DIR=$(dirname "$probe")
HAWSER_SOFTGPU_DIR=${HAWSER_SOFTGPU_DIR:-$3} # make test shares one among its builds
export HAWSER_VKPROBE_DIR HAWSER_SOFTGPU_DIR

if ! assignments=$("$find_vulkan" --software --env); then
    echo "skipped: no software GPU here"
    exit 77
fi
printf '%s\n' "$assignments"

"$find_vulkan" --software -- "$probe" --cpu
(
    eval "$assignments"
    "$probe" --cpu
)
