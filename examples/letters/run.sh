#!/bin/sh
# A transformer trained on this project's pages, then compiled to write with a cache of keys and values.
# `make letters` runs it; `run.sh FOLDER` does with sambac, sambarun and python on the PATH.
set -eux
here=$(dirname "$0")
out=${1:-build/letters}
mkdir -p "$out"

python "$here/prepare.py" "$out" "$here"/../../*.md "$here"/../../docs/*.md
sambac compile "$here/model.py:fit" --train --optimizer adamw:lr=1e-3 -o "$out/fit.pef"
sambarun "$out/fit.pef" --steps 1000 --data "$out/train.npz" --shuffle 0 --save "$out/fit.safetensors"
python "$here/export.py" "$out/fit.safetensors" "$out/writer.pef"
python "$here/write.py" "$out/writer.pef" "The compiler " "A section " "sambarun "
