#!/bin/sh
# Handwritten digits from the command line: data, compilation, training, evaluation, a picture.
# `make digits` runs it; `run.sh FOLDER` does with sambac, sambarun and python on the PATH.
set -eux
here=$(dirname "$0")
out=${1:-build/digits}
mkdir -p "$out"

python "$here/prepare.py" "$out"
sambac compile "$here/model.py:digits" --train --optimizer adamw:lr=1e-3 -o "$out/digits.pef"
sambarun "$out/digits.pef" --steps 440 --data "$out/train.npz" --shuffle 0 \
    --log-csv "$out/loss.csv" --save "$out/digits.safetensors" --eval --data "$out/test.npz"
python "$here/plot.py" "$out/loss.csv" "$out/loss.png"
