"""Parts of a chip, and several chips as one."""

from __future__ import annotations

from dataclasses import replace

from pef.symbols import RegionKind
from sambac.errors import CompileError

from .loading import LARGEST, Arch, Constant, load_arch


def load_device(name_or_path: str, tiles: int | None = None, chips: int = 1) -> Arch:
    """Return the part of a chip that has so many tiles (None: all), or so many whole chips as one.

    Compute and memory units are those of the tiles, and all memory stays within reach. Several
    chips have units, memory, channels and streams of all together.
    Raises `CompileError` as `load_arch`, and for a number of tiles that the chip does not have.
    """
    return sized(load_arch(name_or_path), tiles, chips)


def sized(arch: Arch, tiles: int | None, chips: int) -> Arch:
    """Return a part of `arch`, or several of it as one; see `load_device`.

    Raises `CompileError` where that is more memory than addresses reach, too.
    """
    if tiles is not None:
        arch = _on_tiles(arch, tiles)
    if chips == 1:
        return arch
    for kind in _own(arch):
        if (capacity := arch.regions[kind].value) * chips > LARGEST:
            raise CompileError(
                f"n_chips (--n-chips) is {chips}: that many times {kind.name.lower()}_capacity of "
                f"{arch.name}, {capacity:g} B, is above {LARGEST:g} B. Give fewer chips, or a "
                "smaller capacity."
            )
    return of_chips(arch, chips)


def _on_tiles(arch: Arch, tiles: int) -> Arch:
    if arch.tiles is None:
        known = f"how many tiles {arch.name} has is not published; leave it out"
        raise CompileError(f"num_tiles (--num-tiles): {known}, or describe a part in a TOML file.")
    if not 1 <= tiles <= arch.tiles.value:
        raise CompileError(
            f"num_tiles (--num-tiles) is {tiles}, but {arch.name} has {arch.tiles.value:g} tiles."
        )
    share = tiles / arch.tiles.value

    def part(constant: Constant, least: float = 0.0) -> Constant:
        return replace(constant, value=max(constant.value * share, least))

    return replace(
        arch, pcus=part(arch.pcus, 1), pmus=part(arch.pmus, 1), peak_flops=part(arch.peak_flops)
    )


def of_chips(arch: Arch, chips: int) -> Arch:
    """Return so many chips as one; `arch` may be several already."""

    def times(constant: Constant) -> Constant:
        return replace(constant, value=constant.value * chips / arch.chips)

    own = _own(arch)
    return replace(
        arch,
        chips=chips,
        pcus=times(arch.pcus),
        pmus=times(arch.pmus),
        peak_flops=times(arch.peak_flops),
        regions=arch.regions | {kind: times(arch.regions[kind]) for kind in own},
        tiers=arch.tiers
        | {
            kind: replace(tier, bandwidth=tier.bandwidth and times(tier.bandwidth))
            for kind, tier in arch.tiers.items()
            if kind in own
        },
        stream_bandwidth=arch.stream_bandwidth and times(arch.stream_bandwidth),
    )


def _own(arch: Arch) -> set[RegionKind]:
    """Return the memories that each chip has for itself."""
    return arch.regions.keys() - {RegionKind.HOST}
