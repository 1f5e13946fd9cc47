from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Rates(_message.Message):
    __slots__ = ("batch_s", "batches", "down_s", "up_s", "latency_s")
    BATCH_S_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    DOWN_S_FIELD_NUMBER: _ClassVar[int]
    UP_S_FIELD_NUMBER: _ClassVar[int]
    LATENCY_S_FIELD_NUMBER: _ClassVar[int]
    batch_s: float
    batches: int
    down_s: float
    up_s: float
    latency_s: float
    def __init__(self, batch_s: _Optional[float] = ..., batches: _Optional[int] = ..., down_s: _Optional[float] = ..., up_s: _Optional[float] = ..., latency_s: _Optional[float] = ...) -> None: ...

class FromClient(_message.Message):
    __slots__ = ("hello", "beat", "profiled", "done", "failed", "ready")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    PROFILED_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    beat: Beat
    profiled: Profiled
    done: Done
    failed: Failed
    ready: Ready
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., beat: _Optional[_Union[Beat, _Mapping]] = ..., profiled: _Optional[_Union[Profiled, _Mapping]] = ..., done: _Optional[_Union[Done, _Mapping]] = ..., failed: _Optional[_Union[Failed, _Mapping]] = ..., ready: _Optional[_Union[Ready, _Mapping]] = ...) -> None: ...

class FromServer(_message.Message):
    __slots__ = ("welcome", "beat", "probe", "train", "cancel", "accepted", "refused", "bye", "start")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    TRAIN_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    BYE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    beat: Beat
    probe: Probe
    train: Train
    cancel: Cancel
    accepted: Accepted
    refused: Refused
    bye: Bye
    start: Start
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., beat: _Optional[_Union[Beat, _Mapping]] = ..., probe: _Optional[_Union[Probe, _Mapping]] = ..., train: _Optional[_Union[Train, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., accepted: _Optional[_Union[Accepted, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ..., bye: _Optional[_Union[Bye, _Mapping]] = ..., start: _Optional[_Union[Start, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("name", "run", "model", "fedpace", "instance")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    FEDPACE_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    run: str
    model: str
    fedpace: str
    instance: str
    def __init__(self, name: _Optional[str] = ..., run: _Optional[str] = ..., model: _Optional[str] = ..., fedpace: _Optional[str] = ..., instance: _Optional[str] = ...) -> None: ...

class Ready(_message.Message):
    __slots__ = ("samples", "most")
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    samples: int
    most: int
    def __init__(self, samples: _Optional[int] = ..., most: _Optional[int] = ...) -> None: ...

class Start(_message.Message):
    __slots__ = ("held",)
    HELD_FIELD_NUMBER: _ClassVar[int]
    held: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, held: _Optional[_Iterable[int]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("run", "client", "seed", "settings", "beat_s", "most_bytes")
    RUN_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    BEAT_S_FIELD_NUMBER: _ClassVar[int]
    MOST_BYTES_FIELD_NUMBER: _ClassVar[int]
    run: str
    client: int
    seed: int
    settings: str
    beat_s: float
    most_bytes: int
    def __init__(self, run: _Optional[str] = ..., client: _Optional[int] = ..., seed: _Optional[int] = ..., settings: _Optional[str] = ..., beat_s: _Optional[float] = ..., most_bytes: _Optional[int] = ...) -> None: ...

class Beat(_message.Message):
    __slots__ = ("number", "task", "steps", "latency_s")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    LATENCY_S_FIELD_NUMBER: _ClassVar[int]
    number: int
    task: int
    steps: int
    latency_s: float
    def __init__(self, number: _Optional[int] = ..., task: _Optional[int] = ..., steps: _Optional[int] = ..., latency_s: _Optional[float] = ...) -> None: ...

class Probe(_message.Message):
    __slots__ = ("task", "version", "slot", "batch_size", "go_on", "max_epochs")
    TASK_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    GO_ON_FIELD_NUMBER: _ClassVar[int]
    MAX_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    task: int
    version: int
    slot: str
    batch_size: int
    go_on: bool
    max_epochs: int
    def __init__(self, task: _Optional[int] = ..., version: _Optional[int] = ..., slot: _Optional[str] = ..., batch_size: _Optional[int] = ..., go_on: bool = ..., max_epochs: _Optional[int] = ...) -> None: ...

class Train(_message.Message):
    __slots__ = ("task", "version", "slot", "left_s", "work")
    TASK_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    LEFT_S_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    task: int
    version: int
    slot: str
    left_s: float
    work: str
    def __init__(self, task: _Optional[int] = ..., version: _Optional[int] = ..., slot: _Optional[str] = ..., left_s: _Optional[float] = ..., work: _Optional[str] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("task", "reason")
    TASK_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    task: int
    reason: str
    def __init__(self, task: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Profiled(_message.Message):
    __slots__ = ("task", "rates")
    TASK_FIELD_NUMBER: _ClassVar[int]
    RATES_FIELD_NUMBER: _ClassVar[int]
    task: int
    rates: Rates
    def __init__(self, task: _Optional[int] = ..., rates: _Optional[_Union[Rates, _Mapping]] = ...) -> None: ...

class Done(_message.Message):
    __slots__ = ("task", "version", "rates", "result")
    TASK_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RATES_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    task: int
    version: int
    rates: Rates
    result: str
    def __init__(self, task: _Optional[int] = ..., version: _Optional[int] = ..., rates: _Optional[_Union[Rates, _Mapping]] = ..., result: _Optional[str] = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("task", "reason")
    TASK_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    task: int
    reason: str
    def __init__(self, task: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Accepted(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: int
    def __init__(self, task: _Optional[int] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("task", "reason", "for_good")
    TASK_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FOR_GOOD_FIELD_NUMBER: _ClassVar[int]
    task: int
    reason: str
    for_good: bool
    def __init__(self, task: _Optional[int] = ..., reason: _Optional[str] = ..., for_good: bool = ...) -> None: ...

class Bye(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class RawPiece(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("task", "offset")
    TASK_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    task: int
    offset: int
    def __init__(self, task: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class OfferRequest(_message.Message):
    __slots__ = ("task", "size", "sha256")
    TASK_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    task: int
    size: int
    sha256: bytes
    def __init__(self, task: _Optional[int] = ..., size: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class OfferReply(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class SendReply(_message.Message):
    __slots__ = ("offset", "complete")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    offset: int
    complete: bool
    def __init__(self, offset: _Optional[int] = ..., complete: bool = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("name", "policy", "state", "round", "now_s", "tested", "clients", "own_only", "warnings", "hold_ups", "rounds", "rounds_per_s", "left_s")
    NAME_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    NOW_S_FIELD_NUMBER: _ClassVar[int]
    TESTED_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    OWN_ONLY_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    HOLD_UPS_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_PER_S_FIELD_NUMBER: _ClassVar[int]
    LEFT_S_FIELD_NUMBER: _ClassVar[int]
    name: str
    policy: str
    state: str
    round: int
    now_s: float
    tested: str
    clients: _containers.RepeatedCompositeFieldContainer[ClientStatus]
    own_only: bool
    warnings: _containers.RepeatedScalarFieldContainer[str]
    hold_ups: _containers.RepeatedCompositeFieldContainer[HoldUp]
    rounds: int
    rounds_per_s: float
    left_s: float
    def __init__(self, name: _Optional[str] = ..., policy: _Optional[str] = ..., state: _Optional[str] = ..., round: _Optional[int] = ..., now_s: _Optional[float] = ..., tested: _Optional[str] = ..., clients: _Optional[_Iterable[_Union[ClientStatus, _Mapping]]] = ..., own_only: bool = ..., warnings: _Optional[_Iterable[str]] = ..., hold_ups: _Optional[_Iterable[_Union[HoldUp, _Mapping]]] = ..., rounds: _Optional[int] = ..., rounds_per_s: _Optional[float] = ..., left_s: _Optional[float] = ...) -> None: ...

class HoldUp(_message.Message):
    __slots__ = ("name", "why", "late_s")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    LATE_S_FIELD_NUMBER: _ClassVar[int]
    name: str
    why: str
    late_s: float
    def __init__(self, name: _Optional[str] = ..., why: _Optional[str] = ..., late_s: _Optional[float] = ...) -> None: ...

class ClientStatus(_message.Message):
    __slots__ = ("name", "client", "state", "doing", "last_seen_s", "batch_s", "up_s", "updates", "refused", "down_s", "keys_end", "task", "phase", "task_age_s", "late_s", "last_refusal", "refused_ago_s")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DOING_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_S_FIELD_NUMBER: _ClassVar[int]
    BATCH_S_FIELD_NUMBER: _ClassVar[int]
    UP_S_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    DOWN_S_FIELD_NUMBER: _ClassVar[int]
    KEYS_END_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    TASK_AGE_S_FIELD_NUMBER: _ClassVar[int]
    LATE_S_FIELD_NUMBER: _ClassVar[int]
    LAST_REFUSAL_FIELD_NUMBER: _ClassVar[int]
    REFUSED_AGO_S_FIELD_NUMBER: _ClassVar[int]
    name: str
    client: int
    state: str
    doing: str
    last_seen_s: float
    batch_s: float
    up_s: float
    updates: int
    refused: int
    down_s: float
    keys_end: float
    task: int
    phase: str
    task_age_s: float
    late_s: float
    last_refusal: str
    refused_ago_s: float
    def __init__(self, name: _Optional[str] = ..., client: _Optional[int] = ..., state: _Optional[str] = ..., doing: _Optional[str] = ..., last_seen_s: _Optional[float] = ..., batch_s: _Optional[float] = ..., up_s: _Optional[float] = ..., updates: _Optional[int] = ..., refused: _Optional[int] = ..., down_s: _Optional[float] = ..., keys_end: _Optional[float] = ..., task: _Optional[int] = ..., phase: _Optional[str] = ..., task_age_s: _Optional[float] = ..., late_s: _Optional[float] = ..., last_refusal: _Optional[str] = ..., refused_ago_s: _Optional[float] = ...) -> None: ...

class SignRequest(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: bytes
    def __init__(self, request: _Optional[bytes] = ...) -> None: ...

class SignReply(_message.Message):
    __slots__ = ("certificate", "authority")
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    certificate: bytes
    authority: bytes
    def __init__(self, certificate: _Optional[bytes] = ..., authority: _Optional[bytes] = ...) -> None: ...

class OperateRequest(_message.Message):
    __slots__ = ("expel", "drain", "stop", "page", "reason")
    EXPEL_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    expel: str
    drain: str
    stop: bool
    page: bool
    reason: str
    def __init__(self, expel: _Optional[str] = ..., drain: _Optional[str] = ..., stop: bool = ..., page: bool = ..., reason: _Optional[str] = ...) -> None: ...

class OperateReply(_message.Message):
    __slots__ = ("said", "page")
    SAID_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    said: str
    page: PageLink
    def __init__(self, said: _Optional[str] = ..., page: _Optional[_Union[PageLink, _Mapping]] = ...) -> None: ...

class PageLink(_message.Message):
    __slots__ = ("host", "port", "ticket", "fingerprint")
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    host: str
    port: int
    ticket: str
    fingerprint: str
    def __init__(self, host: _Optional[str] = ..., port: _Optional[int] = ..., ticket: _Optional[str] = ..., fingerprint: _Optional[str] = ...) -> None: ...
