#!/bin/sh
# cp-pool reads Bazel's shard, filter and report path from the environment by itself.
exec cp-pool run "$@"
