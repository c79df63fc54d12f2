"""The device of Undertone's federated service, for Python.

A device keeps the texts of a person sealed in a folder, takes part in private training, and predicts next words with the released
model. This module needs Python 3.9, the shared library of the crate ``undertone-device-c``, and no package::

    with Device.open("folder", settings) as device:
        device.enrol("an invitation")
        device.add("a sentence of the person")
        outcome = device.run()
        with device.predictor() as predictor:
            for word, probability in predictor.predict("we walk to the"):
                print(word, probability)

Any thread may use a device. One call at a time works on it, and another one raises :class:`BusyError` at once;
:meth:`Device.stop` and :meth:`Device.set_unmet` never wait.
"""

from __future__ import annotations

import ctypes
import enum
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Optional, Union

__all__ = [
    "BusyError",
    "Condition",
    "Device",
    "DeviceError",
    "Ended",
    "Evaluation",
    "Model",
    "NoModelError",
    "Outcome",
    "Participation",
    "Prediction",
    "Predictor",
    "Progress",
    "Stage",
    "State",
    "Status",
    "Verdict",
]

_ABI_VERSION = 1
_MESSAGE_BYTES = 1024
_WORD_BYTES = 64

#: The max number of words of one prediction.
MAX_PREDICTIONS = 1024


class Status(enum.IntEnum):
    """The result of a function of the library."""

    OK = 0
    NULL = 1
    UTF8 = 2
    VALUE = 3
    HANDLE = 4
    BUSY = 5
    NO_MODEL = 6
    NETWORK = 7
    REFUSED = 8
    KEY_STORE = 9
    FILES = 10
    FOLDER_OPEN = 11
    PANIC = 12


class Ended(enum.IntEnum):
    """The end of a session."""

    REPORTED = 0
    NOT_ELIGIBLE = 1
    NOT_ENROLLED = 2
    CLOCK = 3
    REJECTED = 4
    REFUSED = 5
    LOST = 6
    OUT_OF_TIME = 7
    NOT_TRAINED = 8
    HOST_NOT_READY = 9
    STOPPED = 10
    TIMED_OUT = 11
    TOO_SLOW = 12
    UNREACHABLE = 13
    OTHER = 99


class Verdict(enum.IntEnum):
    """The word of the service on an update. Nothing rests on it."""

    UNKNOWN = 0
    INCLUDED = 1
    LATE = 2
    ABANDONED = 3


class Progress(enum.IntEnum):
    """The progress of a participation, which counts from its beginning."""

    BEGUN = 0
    COMMITTED = 1
    ENDED = 2


class Stage(enum.IntEnum):
    """The stage of a session, in the order in which they come."""

    BOARD = 0
    CHECK_IN = 1
    LOADING = 2
    TRAINING = 3
    JOINING = 4
    SENDING = 5
    WAITING = 6
    OVER = 7


class Condition(enum.IntFlag):
    """A condition under which a device may work."""

    CHARGING = 1
    IDLE = 2
    UNMETERED = 4
    STORAGE = 8
    THERMAL = 16


class DeviceError(Exception):
    """A failure of the library, with its status and a sentence."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(f"{status.name}: {message}")
        self.status = status
        self.message = message


class BusyError(DeviceError):
    """Another call works on the device now, or this is a call from its own callback."""


class NoModelError(DeviceError):
    """The device holds no released model yet."""


class Prediction(NamedTuple):
    """A word that may come next, and its probability from 0 to 1."""

    word: str
    probability: float


@dataclass(frozen=True)
class Outcome:
    """The end of a session. ``wake_ms`` is the time for the next one, in milliseconds since 1970."""

    ended: Ended
    verdict: Verdict
    wake_ms: int
    down_bytes: int
    up_bytes: int
    message: str


@dataclass(frozen=True)
class State:
    """The state of a device, for its person and its host."""

    enrolled: bool
    public_key: bytes
    session_keys: int
    training_examples: int
    withheld_examples: int
    participations: int
    spent_rho: float
    last_cpu_ms: int
    wake_ms: int


@dataclass(frozen=True)
class Participation:
    """A round of a task for which the device may have sent an update."""

    task: bytes
    round: int
    at_ms: int
    attempt: int
    progress: Progress
    verdict: Verdict


@dataclass(frozen=True)
class Model:
    """A released model that the device holds. ``round`` is the number of releases before it."""

    task: bytes
    round: int
    at_ms: int


@dataclass(frozen=True)
class Evaluation:
    """The quality of a model on texts that the device withheld from training. ``loss`` is in nats per word."""

    examples: int
    words: int
    loss: float
    top1: float
    in_vocabulary_top1: float


_IsMet = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int32)
_Battery = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_void_p)
_Reached = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)


class _Host(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("context", ctypes.c_void_p),
        ("is_met", _IsMet),
        ("battery_percent", _Battery),
        ("reached", _Reached),
        ("key", ctypes.c_void_p),
        ("counter", ctypes.c_void_p),
        ("raise_", ctypes.c_void_p),
        ("forget", ctypes.c_void_p),
    ]


class _Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int32), ("message", ctypes.c_char * _MESSAGE_BYTES)]


class _Outcome(ctypes.Structure):
    _fields_ = [
        ("ended", ctypes.c_int32),
        ("verdict", ctypes.c_int32),
        ("wake_ms", ctypes.c_uint64),
        ("down_bytes", ctypes.c_uint64),
        ("up_bytes", ctypes.c_uint64),
        ("message", ctypes.c_char * _MESSAGE_BYTES),
    ]


class _State(ctypes.Structure):
    _fields_ = [
        ("enrolled", ctypes.c_bool),
        ("public_key", ctypes.c_uint8 * 32),
        ("session_keys", ctypes.c_uint64),
        ("training_examples", ctypes.c_uint64),
        ("withheld_examples", ctypes.c_uint64),
        ("participations", ctypes.c_uint64),
        ("spent_rho", ctypes.c_double),
        ("last_cpu_ms", ctypes.c_uint64),
        ("wake_ms", ctypes.c_uint64),
    ]


class _Participation(ctypes.Structure):
    _fields_ = [
        ("task", ctypes.c_uint8 * 32),
        ("round", ctypes.c_uint64),
        ("at_ms", ctypes.c_uint64),
        ("attempt", ctypes.c_uint32),
        ("progress", ctypes.c_int32),
        ("verdict", ctypes.c_int32),
    ]


class _Model(ctypes.Structure):
    _fields_ = [("task", ctypes.c_uint8 * 32), ("round", ctypes.c_uint64), ("at_ms", ctypes.c_uint64)]


class _Evaluation(ctypes.Structure):
    _fields_ = [
        ("examples", ctypes.c_uint64),
        ("words", ctypes.c_uint64),
        ("loss", ctypes.c_double),
        ("top1", ctypes.c_double),
        ("in_vocabulary_top1", ctypes.c_double),
    ]


class _Prediction(ctypes.Structure):
    _fields_ = [("probability", ctypes.c_double), ("word", ctypes.c_char * _WORD_BYTES)]


_U64 = ctypes.c_uint64
_TEXT = ctypes.c_char_p
_COUNT = ctypes.POINTER(ctypes.c_size_t)

#: Each function with the types of its arguments.
_FUNCTIONS: dict[str, list[Any]] = {
    "ut_last_error": [ctypes.POINTER(_Error)],
    "ut_device_open": [_TEXT, _TEXT, ctypes.POINTER(_Host), ctypes.POINTER(_U64)],
    "ut_device_close": [_U64],
    "ut_device_enrol": [_U64, _TEXT, _TEXT],
    "ut_device_renew": [_U64],
    "ut_example_add": [_U64, _TEXT, _U64, _U64],
    "ut_examples_clear": [_U64],
    "ut_device_run": [_U64, ctypes.POINTER(_Outcome)],
    "ut_device_stop": [_U64],
    "ut_device_set_unmet": [_U64, ctypes.c_uint32],
    "ut_device_state": [_U64, ctypes.POINTER(_State)],
    "ut_participations": [_U64, ctypes.POINTER(_Participation), ctypes.c_size_t, _COUNT],
    "ut_models": [_U64, ctypes.POINTER(_Model), ctypes.c_size_t, _COUNT],
    "ut_device_evaluate": [_U64, _TEXT, ctypes.POINTER(_Evaluation)],
    "ut_device_forget": [_U64],
    "ut_predictor_open": [_U64, _TEXT, ctypes.POINTER(_U64)],
    "ut_predictor_model": [_U64, ctypes.POINTER(_Model)],
    "ut_predict": [_U64, _TEXT, ctypes.POINTER(_Prediction), ctypes.c_size_t, _COUNT],
    "ut_predictor_close": [_U64],
}

_library: Optional[ctypes.CDLL] = None


def load(path: Union[str, os.PathLike[str], None] = None) -> None:
    """Loads the shared library.

    Without a path it is that of the variable ``UNDERTONE_DEVICE_LIBRARY``, the one beside this file, or the one that the system finds.
    The first device loads it, so a program calls this only to choose another library.
    """
    global _library
    name = {"win32": "undertone_device_c.dll", "darwin": "libundertone_device_c.dylib"}.get(
        sys.platform, "libundertone_device_c.so"
    )
    beside = Path(__file__).with_name(name)
    chosen = path or os.environ.get("UNDERTONE_DEVICE_LIBRARY") or (beside if beside.exists() else name)
    library = ctypes.CDLL(os.fspath(chosen))
    library.ut_abi_version.restype = ctypes.c_uint32
    got = library.ut_abi_version()
    if got != _ABI_VERSION:
        raise ImportError(f"{chosen} must have version {_ABI_VERSION} of the interface, got {got}")
    for function, arguments in _FUNCTIONS.items():
        getattr(library, function).argtypes = arguments
        getattr(library, function).restype = ctypes.c_int32
    _library = library


def _loaded() -> ctypes.CDLL:
    if _library is None:
        load()
    assert _library is not None
    return _library


def _call(function: str, *arguments: object) -> None:
    library = _loaded()
    status = getattr(library, function)(*arguments)
    if status == Status.OK:
        return
    error = _Error()
    library.ut_last_error(ctypes.byref(error))
    kind = {Status.BUSY: BusyError, Status.NO_MODEL: NoModelError}.get(status, DeviceError)
    raise kind(Status(status), error.message.decode("utf-8", "replace"))


def _text(name: str, text: Optional[str]) -> Optional[bytes]:
    if text is not None and "\0" in text:
        raise ValueError(f"`{name}` must be without zero characters")
    return None if text is None else text.encode()


def _task(task: Optional[bytes]) -> Optional[bytes]:
    if task is not None and len(task) != 32:
        raise ValueError(f"`task` must be 32 bytes, got {len(task)}")
    return task


class Predictor:
    """A released model in memory, ready to predict. It stays usable when its device is closed."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __enter__(self) -> Predictor:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", 0), 0
        if handle and _library is not None:
            _library.ut_predictor_close(handle)

    def close(self) -> None:
        """Frees the model. Closing twice does nothing."""
        handle, self._handle = self._handle, 0
        _call("ut_predictor_close", handle)

    def model(self) -> Model:
        """The task, the round and the time of the model."""
        model = _Model()
        _call("ut_predictor_model", self._handle, ctypes.byref(model))
        return Model(bytes(model.task), model.round, model.at_ms)

    def predict(self, text: str, count: int = 5) -> list[Prediction]:
        """The next words with the highest probabilities after a text. The last word of the text counts as complete."""
        if not 0 <= count <= MAX_PREDICTIONS:
            raise ValueError(f"`count` must be from 0 to {MAX_PREDICTIONS}, got {count}")
        words, found = (_Prediction * max(count, 1))(), ctypes.c_size_t()
        _call("ut_predict", self._handle, _text("text", text), words, count, ctypes.byref(found))
        return [Prediction(each.word.decode(), each.probability) for each in words[: found.value]]


class Device:
    """A device of one population, in a folder that must not be part of a backup."""

    def __init__(self, handle: int, host: Optional[_Host]) -> None:
        self._handle = handle
        # The library calls these callbacks as long as the device is open.
        self._host = host

    @classmethod
    def open(
        cls,
        folder: Union[str, os.PathLike[str]],
        settings: Union[str, Mapping[str, object]],
        *,
        is_met: Optional[Callable[[Condition], bool]] = None,
        battery_percent: Optional[Callable[[], Optional[float]]] = None,
        reached: Optional[Callable[[Stage], None]] = None,
    ) -> Device:
        """Opens the device in a folder, or makes it.

        ``settings`` is JSON or a mapping: the service, the population, and the keys that the app trusts. ``is_met`` says whether the
        machine meets a condition now. ``battery_percent`` returns the charge, or None without a battery. ``reached`` gets each stage
        of a session. The callbacks run on the thread of :meth:`run`. An exception in ``is_met`` counts as a condition that is not met,
        and is raised by ``sys.unraisablehook`` like one in any callback.
        """
        text = settings if isinstance(settings, str) else json.dumps(dict(settings))
        host = _Host(size=ctypes.sizeof(_Host))
        if is_met is not None:
            ask = is_met
            host.is_met = _IsMet(lambda _, condition: bool(ask(Condition(condition))))
        if battery_percent is not None:
            measure = battery_percent

            def percent(_: object) -> float:
                charge = measure()
                return -1.0 if charge is None else charge

            host.battery_percent = _Battery(percent)
        if reached is not None:
            tell = reached
            host.reached = _Reached(lambda _, stage: tell(Stage(stage)))
        handle = _U64()
        _call("ut_device_open", _text("folder", os.fspath(folder)), _text("settings", text), host, handle)
        return cls(handle.value, host)

    def __enter__(self) -> Device:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", 0), 0
        if handle and _library is not None:
            _library.ut_device_close(handle)

    def close(self) -> None:
        """Closes the device. A session that runs is stopped first. Closing twice does nothing."""
        handle = self._handle
        _call("ut_device_close", handle)
        self._handle = 0

    def enrol(self, invitation: Optional[str] = None, *, subject: Optional[str] = None) -> None:
        """Gets a certificate from the service. ``subject`` counts with the identity level ``dev`` alone."""
        _call("ut_device_enrol", self._handle, _text("invitation", invitation), _text("subject", subject))

    def renew(self) -> None:
        """Renews the certificate while it is valid. A session does so by itself in the last ten days."""
        _call("ut_device_renew", self._handle)

    def add(self, text: str, *, collected_ms: int = 0, expires_ms: int = 0) -> None:
        """Gives a text of the person to the device, which seals it. 0 stands for now, and for the latest end that is allowed."""
        _call("ut_example_add", self._handle, _text("text", text), collected_ms, expires_ms)

    def add_all(self, texts: Iterable[str]) -> int:
        """Gives texts to the device, and returns their number."""
        number = 0
        for text in texts:
            self.add(text)
            number += 1
        return number

    def clear(self) -> None:
        """Deletes all texts."""
        _call("ut_examples_clear", self._handle)

    def run(self) -> Outcome:
        """Runs one session and waits for its end. Other threads of Python go on meanwhile."""
        found = _Outcome()
        _call("ut_device_run", self._handle, ctypes.byref(found))
        return Outcome(
            Ended(found.ended),
            Verdict(found.verdict),
            found.wake_ms,
            found.down_bytes,
            found.up_bytes,
            found.message.decode("utf-8", "replace"),
        )

    def stop(self) -> None:
        """Stops the session that runs. It does not wait, and may be called from a callback."""
        _call("ut_device_stop", self._handle)

    def set_unmet(self, conditions: Condition) -> None:
        """Sets the conditions that are not met now; ``Condition(0)`` where all are met."""
        _call("ut_device_set_unmet", self._handle, int(conditions))

    def state(self) -> State:
        """The state of the device."""
        found = _State()
        _call("ut_device_state", self._handle, ctypes.byref(found))
        return State(
            found.enrolled,
            bytes(found.public_key),
            found.session_keys,
            found.training_examples,
            found.withheld_examples,
            found.participations,
            found.spent_rho,
            found.last_cpu_ms,
            found.wake_ms,
        )

    def _list(self, function: str, kind: type[ctypes.Structure]) -> list[Any]:
        count = ctypes.c_size_t()
        _call(function, self._handle, None, 0, ctypes.byref(count))
        rows = (kind * max(count.value, 1))()
        _call(function, self._handle, rows, count.value, ctypes.byref(count))
        return list(rows[: count.value])

    def participations(self) -> Iterator[Participation]:
        """Everything that the device ever sent: the rounds for which it may have sent an update, in their order."""
        for row in self._list("ut_participations", _Participation):
            progress, verdict = Progress(row.progress), Verdict(row.verdict)
            yield Participation(bytes(row.task), row.round, row.at_ms, row.attempt, progress, verdict)

    def models(self) -> Iterator[Model]:
        """The released models that the device holds, the newest first."""
        for row in self._list("ut_models", _Model):
            yield Model(bytes(row.task), row.round, row.at_ms)

    def evaluate(self, task: Optional[bytes] = None) -> Evaluation:
        """Measures the model of a task, or the newest one, on the texts that the device withholds. Nothing is sent."""
        found = _Evaluation()
        _call("ut_device_evaluate", self._handle, _task(task), ctypes.byref(found))
        return Evaluation(found.examples, found.words, found.loss, found.top1, found.in_vocabulary_top1)

    def predictor(self, task: Optional[bytes] = None) -> Predictor:
        """Loads the model of a task, or the newest one. Raises :class:`NoModelError` where the device holds none."""
        handle = _U64()
        _call("ut_predictor_open", self._handle, _task(task), ctypes.byref(handle))
        return Predictor(handle.value)

    def forget(self) -> None:
        """Deletes the texts, the memory and the keys of the device, and closes it. Released models stay as they are."""
        handle, self._handle = self._handle, 0
        _call("ut_device_forget", handle)
