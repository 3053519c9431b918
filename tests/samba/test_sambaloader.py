"""SambaLoader: order, conversion, errors, and an end to its thread in every case."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from forked import Forks
from torch.utils.data import DataLoader, TensorDataset

from sambaflow.samba.sambaloader import _MOST_FAILURES, DataLoaderException, SambaLoader
from sambaflow.samba.tensors.tensor import SambaTensor


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "SambaLoader"]


@pytest.fixture(autouse=True)
def _no_thread_survives() -> Iterator[None]:
    yield
    gc.collect()
    assert not _threads()


def _pairs(count: int = 6) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.full((2, 3), float(i)), torch.tensor([i, i])) for i in range(count)]


def test_batches_come_in_order_with_names() -> None:
    data = TensorDataset(torch.arange(12.0).reshape(6, 2), torch.arange(6))
    loader = SambaLoader(DataLoader(data, batch_size=2), ["image", "label"])
    found = list(loader)
    assert len(loader) == len(found) == 3
    assert [label.tolist() for _, label in found] == [[0, 1], [2, 3], [4, 5]]
    for image, label in found:
        assert isinstance(image, SambaTensor)
        assert (image.sn_name, image.batch_dim, label.sn_name) == ("image", 0, "label")


def test_it_starts_anew_each_time() -> None:
    loader = SambaLoader(_pairs(3), ["x", "y"], maxsize=1)
    assert [[int(y[0]) for _, y in loader] for _ in range(2)] == [[0, 1, 2], [0, 1, 2]]


def test_two_iterations_at_once_do_not_mix() -> None:
    loader = SambaLoader(_pairs(3), ["x", "y"])
    assert [(int(a[1][0]), int(b[1][0])) for a, b in zip(loader, loader, strict=True)] == [
        (0, 0),
        (1, 1),
        (2, 2),
    ]


def test_batches_wait_up_to_maxsize() -> None:
    made = []
    third = threading.Event()

    def source() -> Iterator[torch.Tensor]:
        for i in range(10):
            made.append(i)
            if i == 3:
                third.set()
            yield torch.tensor([i])

    iteration = iter(SambaLoader(source(), ["x"], maxsize=2))
    next(iteration)
    assert third.wait(60)  # one taken, two waiting, one in hand
    assert made == [0, 1, 2, 3]
    assert [int(x) for (x,) in iteration] == list(range(1, 10))


def test_none_arrays_and_single_tensors() -> None:
    ((x, y, z),) = SambaLoader([[torch.ones(1), None, np.ones((2, 1))]], ["a", "b", "c"])
    assert y is None
    assert (x.sn_name, z.sn_name, z.shape) == ("a", "c", (2, 1))
    ((x,),) = SambaLoader([torch.ones(2, 2).T], ["a"])
    assert x.is_contiguous()


def test_mappings_keep_their_keys() -> None:
    batch = {"ids": torch.ones(2), "mask": None, "text": ["a", "b"]}
    (found,) = SambaLoader([batch], ["ids", "mask"])
    assert list(found) == ["ids", "mask"]
    assert found["ids"].sn_name == "ids"
    ((found, original),) = SambaLoader([batch], ["ids"], return_original_batch=True)
    assert list(found) == ["ids"]
    assert original is batch


def test_hook_and_original_batch() -> None:
    batches = _pairs(2)
    loader = SambaLoader(
        batches, ["image"], function_hook=lambda batch: [batch[0]], return_original_batch=True
    )
    for (image, original), batch in zip(loader, batches, strict=True):
        assert image.sn_name == "image"
        assert original is batch


def _failing() -> Iterator[tuple[torch.Tensor]]:
    yield (torch.zeros(1),)
    raise OSError("the disk is gone")


def test_errors_of_the_loader_are_passed_on_where_they_happen() -> None:
    iteration = iter(SambaLoader(_failing(), ["x"]))
    next(iteration)
    with pytest.raises(DataLoaderException, match="OSError: the disk is gone") as error:
        next(iteration)
    assert isinstance(error.value.__cause__, OSError)


class _Sometimes(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 1:
            raise ValueError("a bad record")
        return torch.tensor(float(index))


def test_batches_that_fail_can_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    loader = SambaLoader(DataLoader(_Sometimes()), ["x"], ignore_dataloader_exception=True)
    assert [float(x) for (x,) in loader] == [0.0, 2.0, 3.0]
    assert "ValueError: a bad record" in capsys.readouterr().out


class _Never:
    def __iter__(self) -> _Never:
        return self

    def __next__(self) -> object:
        raise ValueError("nothing works")


def test_a_loader_that_only_fails_is_no_endless_loop() -> None:
    with pytest.raises(DataLoaderException, match="nothing works"):
        list(SambaLoader(_Never(), ["x"], ignore_dataloader_exception=True))


def test_tensors_that_have_names_get_those_of_the_loader() -> None:
    ((x,),) = SambaLoader([(SambaTensor(torch.ones(1), name="other"),)], ["x"])
    assert isinstance(x, SambaTensor)
    assert x.sn_name == "x"


class _EverySecond(torch.utils.data.Dataset[torch.Tensor]):
    """Rows of which half cannot be read, more than may fail in a row."""

    def __len__(self) -> int:
        return 2 * _MOST_FAILURES + 2

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % 2:
            raise ValueError("a bad record")
        return torch.tensor(float(index))


def test_failures_with_batches_between_them_may_be_many() -> None:
    loader = SambaLoader(DataLoader(_EverySecond()), ["x"], ignore_dataloader_exception=True)
    assert len(list(loader)) == _MOST_FAILURES + 1


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ((torch.ones(1),), "1 parts for the 2 names x, y"),
        ((torch.ones(1), "text"), "y is a str in a batch"),
        ({"x": torch.ones(1)}, "a batch has x, but not y"),
    ],
)
def test_batches_that_do_not_fit_the_names(batch: object, message: str) -> None:
    with pytest.raises(DataLoaderException, match=message):
        list(SambaLoader([batch], ["x", "y"]))


def test_too_late_is_an_error() -> None:
    release = threading.Event()

    def slow() -> Iterator[torch.Tensor]:
        release.wait(60)
        yield torch.ones(1)

    iteration = iter(SambaLoader(slow(), ["x"], timeout=0.01))
    timer = threading.Timer(0.5, release.set)
    timer.start()
    with pytest.raises(DataLoaderException, match=r"no batch came within 0\.01 s"):
        next(iteration)
    timer.join()


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="maxsize is 0"):
        SambaLoader([], ["x"], maxsize=0)
    with pytest.raises(TypeError, match="names is 'x'"):
        SambaLoader([], "x")
    with pytest.raises(TypeError, match="does not know its length"):
        len(SambaLoader(iter([]), ["x"]))


def _endless() -> Iterator[torch.Tensor]:
    while True:
        yield torch.ones(1)


def test_a_break_ends_the_thread() -> None:
    for _ in SambaLoader(_endless(), ["x"], maxsize=1):
        break
    assert not _threads()


def test_an_exception_of_the_consumer_ends_the_thread() -> None:
    def consume() -> None:
        for _ in SambaLoader(_endless(), ["x"], maxsize=1):
            raise KeyError("consumer")

    with pytest.raises(KeyError):
        consume()
    gc.collect()
    assert not _threads()


def test_a_forgotten_iteration_ends_its_thread() -> None:
    iteration = iter(SambaLoader(_endless(), ["x"], maxsize=1))
    next(iteration)
    assert _threads()
    del iteration
    gc.collect()
    assert not _threads()


def test_a_generator_is_closed_when_its_reader_stops() -> None:
    closed = threading.Event()

    def source() -> Iterator[torch.Tensor]:
        try:
            yield from _endless()
        finally:
            closed.set()

    for _ in SambaLoader(source(), ["x"], maxsize=1):
        break
    gc.collect()
    assert closed.wait(60)


_EXIT = """
import torch
from sambaflow.samba.sambaloader import SambaLoader
def endless():
    while True:
        yield torch.ones(1)
iteration = iter(SambaLoader(endless(), ["x"], maxsize=1))
next(iteration)
print("left")
"""


def test_the_interpreter_ends_with_an_iteration_open(forks: Forks, tmp_path: Path) -> None:
    assert forks.run([""], tmp_path, _EXIT) == (0, "left\n", "")
