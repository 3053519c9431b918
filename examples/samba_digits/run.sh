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

# Two processes with 16 rows each make the steps that one makes with 32.
$app compile -b 16 --data-parallel -ws 2 --output-folder "$out" --pef-name digits_two
torchrun --standalone --nproc-per-node 2 "$here/app.py" run -b 16 --data-parallel \
    --data-parallel-mode optimal --pef "$out/digits_two/digits_two.pef" --num-epochs 2 \
    --checkpoint "$out/digits_two.pt"
$app run -b 32 --pef "$pef" --inference --resume "$out/digits_two.pt"
