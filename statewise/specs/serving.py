"""How runs are served over HTTP: the address, who may ask, how much at once, and the limits of one request."""

import ipaddress
from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator

from statewise.specs.base import Spec

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_SHORTEST_KEY = 8


class ServingSpec(Spec):
    host: str = Field("127.0.0.1", min_length=1, description="address to listen on; another than loopback needs a key")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0: a free one")
    keys: tuple[SecretStr, ...] = Field(
        (), max_length=64, description="clients must send one of them; states of one key are invisible to the others"
    )
    hosts: tuple[str, ...] = Field(
        (), max_length=64, description="names in the Host header that are accepted besides the address itself"
    )

    engine: Literal["local", "ray"] = Field("local", description="where texts are generated: here, or on a Ray cluster")
    replicas: int = Field(2, ge=1, le=256, description="copies of the models on a cluster")
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1")
    threads: int | None = Field(
        None, ge=1, le=1024, description="threads that compute on a CPU; default: one for each core"
    )
    slots: int = Field(32, ge=1, le=65536, description="texts generated at once, of each model")
    queue: int = Field(64, ge=0, le=1 << 20, description="texts that wait for a slot; more are refused")
    batch_invariant: bool = Field(
        False, description="each text alone in its batch: bit for bit the same text in any company, but slower"
    )
    prefix_sharing: Literal["none", "own", "all"] = Field(
        "own", description="whose states of earlier prompts a prompt may start from; all: timing reveals other prompts"
    )
    prefix_bytes: int = Field(256 << 20, ge=0, description="memory for the states of earlier prompts")

    states: str | None = Field(None, description="folder that keeps saved states over a restart; none: memory alone")
    state_count: int = Field(100_000, ge=1, description="most saved states; the least recently used is deleted")
    state_memory: int = Field(
        1 << 30, ge=0, description="bytes of saved states in memory; with a folder the rest is there"
    )
    state_upload: int = Field(64 << 20, ge=1, description="most bytes of an uploaded state")

    body_bytes: int = Field(1 << 20, ge=1024, le=1 << 30, description="most bytes of a request's body")
    max_prompts: int = Field(64, ge=1, le=4096, description="most prompts of one request")
    max_prompt: int = Field(16384, ge=1, description="most tokens of a prompt together with those to generate")
    max_tokens: int = Field(4096, ge=1, description="most tokens to generate")
    max_choices: int = Field(8, ge=1, le=128, description="largest n and best_of")
    max_logprobs: int = Field(
        20, ge=0, le=128, description="most tokens whose probabilities are reported at a position"
    )
    queue_seconds: float = Field(30.0, gt=0, description="longest wait for a slot")
    request_seconds: float = Field(120.0, gt=0, description="longest time for one text, waiting included")
    receive_seconds: float = Field(10.0, gt=0, description="longest time for a request to arrive")
    ping_seconds: float = Field(15.0, gt=0, description="a stream without text for so long gets a comment")
    drain_seconds: float = Field(10.0, ge=0, description="time for running requests after a signal to stop")
    unread_bytes: int = Field(64 << 10, ge=1024, description="a client that leaves so much unread is disconnected")

    @model_validator(mode="after")
    def _is_protected(self) -> Self:
        for key in self.keys:
            text = key.get_secret_value()
            if len(text) < _SHORTEST_KEY or not text.isascii() or not text.isprintable() or " " in text:
                raise ValueError(
                    f"a key needs at least {_SHORTEST_KEY} printable ASCII characters without spaces; "
                    "make one with: openssl rand -hex 16"
                )
        if not self.is_loopback and not self.keys:
            raise ValueError(
                f"host {self.host} can be reached from other machines and there is no key; "
                "set the environment variable STATEWISE_KEY, or listen on 127.0.0.1"
            )
        return self

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this machine can connect."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"
