"""Settings: the command line first, then PAGETURN_* variables, then defaults."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import ByteSize, Field, ValidationError, field_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from chat.views import AnswerMode, RewriteMode
from engine.config import KVMemory
from engine.errors import SettingError
from host.errors import SettingRefused

PREFIX = "PAGETURN_"
DEFAULT_MODEL = "SmolLM2-135M-Instruct"
DEFAULT_EMBEDDER = "all-MiniLM-L6-v2"


class Settings(BaseSettings):
    """Everything that can be set, validated; paths are relative to the current folder."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="Address to listen on.", min_length=1)
    port: int = Field(7860, description="Port to listen on; 0 takes a free one.", ge=0, le=65535)
    data_dir: Path = Field(Path("data/var"), description="Folder of documents, index, chats.")
    models_dir: Path = Field(Path("data/var/models"), description="Folder of the default models.")
    auth: Path | None = Field(
        None, description="File of accounts; the page then asks who you are. See `user add`."
    )
    upload_quota: ByteSize = Field(
        ByteSize(2 * 2**30),
        description="Files of one person that may wait on the server's disk to be read: bytes or "
        "2GiB, 512MB.",
        gt=0,
    )
    upload_quota_total: ByteSize = Field(
        ByteSize(2 * 2**30), description="The same of all people together.", gt=0
    )
    model: str = Field(
        DEFAULT_MODEL,
        description="Chat model: a name, a folder, a .gguf file or a Hub id that was fetched.",
        min_length=1,
    )
    embedder: str = Field(
        DEFAULT_EMBEDDER,
        description="Embedding model: a name, a folder or a Hub id that was fetched.",
        min_length=1,
    )
    reranker: str = Field(
        "",
        description="A cross-encoder that orders what search found: a folder or a fetched Hub id. "
        "Off when empty.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto, cpu or cuda.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="auto, float32, bfloat16 or float16."
    )
    backend: Literal["auto", "torch", "native"] = Field(
        "auto",
        description="What computes: native (our kernels for x86 CPUs), torch, or auto: native "
        "where it can be had.",
    )
    weights: Literal["auto", "bfloat16", "int8", "int4"] = Field(
        "auto",
        description="What the weights are held in on a CPU: auto (a GGUF file's own 4 or 8 bits, "
        "else int8), bfloat16, int8 or int4.",
    )
    answer: AnswerMode = Field(
        "auto",
        description="What is shown: evidence (the documents' own sentences), generate (the "
        "model's text) or auto (both).",
    )
    rewrite: RewriteMode = Field(
        "auto",
        description="Whether the model rewrites a follow-up as a question that stands alone before "
        "it is searched: on, off, or auto: with a model of a billion parameters and more.",
    )
    kv_memory: str = Field(
        "auto",
        description="Memory of the KV cache: auto, bytes (2GiB, 512MB) or a fraction (0.5) of "
        "the free memory of the device.",
    )
    kv_dtype: Literal["auto", "float32", "bfloat16", "float16", "fp8", "int8", "k8v4", "int4"] = (
        Field(
            "auto",
            description="What keys and values are held in: auto (the dtype of the arithmetic, or "
            "int8 where memory is short), float32, bfloat16, float16, fp8, int8, k8v4 or int4.",
        )
    )
    refresh_tokens: int = Field(
        512,
        description="With coded KV, refresh a conversation exactly in idle time when so many of "
        "its tokens are approximate; 0 never does.",
        ge=0,
    )
    page_size: int = Field(16, description="Tokens in a page of the KV cache.", ge=1, le=1024)
    max_sessions: int = Field(8, description="Conversations that may hold KV.", ge=1, le=1024)

    @field_validator("kv_memory")
    @classmethod
    def _kv_memory_is_a_size(cls, value: str) -> str:
        # The engine's own reading of it, so that there is one. No ValueError: pydantic lets other
        # exceptions through as they are.
        try:
            KVMemory.parse(value)
        except SettingError as error:
            raise SettingRefused(str(error)) from None
        return value

    @field_validator("page_size")
    @classmethod
    def _page_size_is_a_power_of_two(cls, value: int) -> int:
        if value & (value - 1):
            raise ValueError("must be a power of two, such as 16")
        return value


def load(options: Mapping[str, Any]) -> Settings:
    """Settings from the options that were given (None = not given) over PAGETURN_* variables.

    Raises SettingRefused, with a sentence that names the option or variable at fault.
    """
    given = {name: value for name, value in options.items() if value is not None}
    _refuse_unknown_variables()
    try:
        return Settings(**given)
    except ValidationError as error:
        raise SettingRefused(_sentence(error.errors()[0], given)) from None


def option_name(field: str) -> str:
    """The command-line option of a field: data_dir -> --data-dir."""
    return "--" + field.replace("_", "-")


def _refuse_unknown_variables() -> None:
    known = {PREFIX + field.upper() for field in Settings.model_fields}
    for name in sorted(os.environ):
        if name.startswith(PREFIX) and name not in known:
            raise SettingRefused(
                f"The variable {name} is not a setting of Pageturn. "
                f"Known are {', '.join(sorted(known))}."
            )


def _sentence(problem: ErrorDetails, given: Mapping[str, Any]) -> str:
    field = str(problem["loc"][0])
    if problem["type"] == "extra_forbidden":
        return f"{field!r} is not a setting of Pageturn."
    source = option_name(field) if field in given else PREFIX + field.upper()
    value = problem["input"]
    return f"{source} {_requirement(field, problem)}, not {str(value)!r}."


def _requirement(field: str, problem: ErrorDetails) -> str:
    annotation = Settings.model_fields[field].annotation
    limits = problem.get("ctx", {})
    match problem["type"]:
        case "literal_error":
            *most, last = get_args(annotation)
            return f"must be {', '.join(most)} or {last}"
        case "int_parsing" | "int_type" | "int_from_float":
            return "must be a whole number"
        case "byte_size" | "byte_size_unit":
            return "must be bytes or a size such as 2GiB or 512MB"
        case "greater_than":
            return f"must be more than {limits['gt']}"
        case "greater_than_equal":
            return f"must be at least {limits['ge']}"
        case "less_than_equal":
            return f"must be at most {limits['le']}"
        case "string_too_short":
            return "must not be empty"
        case _:
            return problem["msg"].removeprefix("Value error, ")
