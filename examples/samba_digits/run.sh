#!/bin/sh
# A SambaFlow application from compilation to inference. `make samba` runs this;
# `run.sh FOLDER` does with python on the PATH.
set -eux
here=$(dirname "$0")
out=${1:-build/samba}
app="python $here/app.py"
pef=$out/digits/digits.pef
mkdir -p "$out"

$app compile -b 32 --output-folder "$out"
$app test -b 32 --pef "$pef"
$app run -b 32 --pef "$pef" --num-epochs 2 --checkpoint "$out/digits.pt"
$app run -b 32 --pef "$pef" --num-epochs 6 --resume "$out/digits.pt" --checkpoint "$out/digits.pt"
$app run -b 32 --pef "$pef" --inference --resume "$out/digits.pt" \
    --acc-report-json "$out/accuracy.json"
$app measure-performance -b 32 --pef "$pef"
$app measure-sections -b 32 --pef "$pef"
