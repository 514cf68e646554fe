#!/bin/sh
# cp-pool obeys the shard, the filter and the report of Bazel by itself.
exec cp-pool run "$@"
