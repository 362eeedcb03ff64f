#!/bin/sh
# Make the checkpoints of this folder anew: a virtual environment for each Spark version below a scratch folder, then
# make.py under each of them. Format v2 gets a JVM of its own: Spark 4.0 writes the header of its RocksDB zips by what
# the JVM's first query was set to.
#
#   tests/data/checkpoints/make.sh [SCRATCH] [VERSION]...
set -eu
here=$(cd "$(dirname "$0")" && pwd)
uv=${UV:-$here/../../../.boot/bin/uv}
scratch=${1:-${TMPDIR:-/tmp}/streambank-checkpoints}
[ $# -gt 0 ] && shift
for version in ${*:-3.5.9 4.0.5 4.3.0}; do
  venv=$scratch/spark-$version
  if [ ! -x "$venv/bin/python" ]; then
    "$uv" venv -q --python 3.11 "$venv"
    "$uv" pip install -q --python "$venv/bin/python" "pyspark==$version" "pandas<3" protobuf pyarrow "setuptools<80"
  fi
  for format in "" --ids; do
    "$venv/bin/python" -W ignore "$here/make.py" --work "$scratch/work" $format
  done
done
