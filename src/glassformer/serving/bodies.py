"""What can be asked: the bodies of requests, typed.

A field that is not listed is refused by its name: what would be ignored could have changed the answer. Those
of OpenAI's that change nothing here are listed and accepted; those that we cannot do are listed with the one
value that asks for nothing. How large things may be, asked.py checks.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Id = Annotated[int, Field(ge=0, le=1 << 31)]
Text = Annotated[str, Field(description="a text")]
Number = Annotated[float, Field(ge=-1e30, le=1e30)]
Place = Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=False)

    model: Annotated[str, Field(description="the name of a run, as /v1/models lists it")]


class Harmless(BaseModel):
    """What OpenAI's clients may send and what changes nothing here."""

    user: str | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    include_usage: bool | None = None
    include_obfuscation: bool | None = None  # hides lengths from who watches the network; loopback has none


class JsonSchema(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    name: str | None = None
    description: str | None = None
    strict: bool | None = None
    schema_: Annotated[dict[str, Any] | bool | None, Field(alias="schema")] = None


class ResponseFormat(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


Seed = Annotated[int, Field(ge=0, lt=1 << 63)]
Temperature = Annotated[float, Field(ge=0, le=100)]
Share = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1, le=1 << 31)]


class Drawing(Body, Harmless):
    """How texts are written: what completions and chat share."""

    n: Annotated[int, Field(ge=1)] | None = None
    stop: str | list[str] | None = None
    seed: Seed | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: Count | None = None
    min_p: Share | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = None
    response_format: ResponseFormat | None = None
    regex: Annotated[str | None, Field(description="the whole text matches this regular expression")] = None


class CompletionBody(Drawing):
    prompt: str | list[str] | list[Id] | list[list[Id]] = ""
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    logprobs: Annotated[int, Field(ge=0)] | None = None
    echo: bool | None = None
    suffix: Annotated[None, Field(description="not supported")] = None
    best_of: Annotated[
        int | None, Field(description="n, or nothing: what is not returned is not written")
    ] = None


class TextPart(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["text"]
    text: str


class Message(BaseModel):
    model_config = ConfigDict(extra="forbid")

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    # Of an answer that is sent back to us; it holds none of these.
    refusal: None = None
    audio: None = None
    function_call: None = None
    tool_calls: None = None


class ChatBody(Drawing):
    messages: Annotated[list[Message], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0)] | None = None
    # What is not done here, with the value that does not ask for it.
    tools: Annotated[list[Any] | None, Field(max_length=0, description="not supported")] = None
    functions: Annotated[list[Any] | None, Field(max_length=0, description="not supported")] = None
    tool_choice: Literal["none", "auto"] | None = None
    function_call: Literal["none", "auto"] | None = None
    parallel_tool_calls: bool | None = None  # there are no tools to call
    modalities: list[Literal["text"]] | None = None
    audio: None = None
    prediction: None = None
    web_search_options: None = None
    reasoning_effort: Literal["none"] | None = None


class EmbeddingBody(Body, Harmless):
    input: str | list[str] | list[Id] | list[list[Id]]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None


class TokenizeBody(Body):
    text: str
    specials: Annotated[bool, Field(description="read <|endoftext|> and its kin as marks")] = False


class DetokenizeBody(Body):
    tokens: list[Id]


class TextsBody(Body):
    text: str | list[str]


class TranslateBody(TextsBody):
    beams: Annotated[int, Field(ge=1)] | None = None
    length_penalty: Annotated[float, Field(ge=0, le=10)] | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: Count | None = None
    min_p: Share | None = None
    seed: Seed | None = None


class FillBody(TextsBody):
    top: Annotated[int, Field(ge=1, le=1000)] = 5


class EditBody(BaseModel):
    """A change to what the model computes, as `gf.edit` makes it."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    site: str
    kind: Annotated[
        Literal["zero", "put", "steer"],
        Field(description="nothing there, `value` there, or `value` × `strength` added"),
    ] = "zero"
    value: Number | list[Number] | list[list[Number]] | None = None
    strength: Annotated[float, Field(ge=-1e6, le=1e6)] | None = None
    heads: list[Place] | None = None
    positions: list[Place] | None = None


class LookBody(Body):
    text: str
    target: Annotated[str | None, Field(description="of a translator: the translation to look at")] = None
    tokens: Annotated[int, Field(ge=0, description="let a language model write so many first")] = 0
    edits: list[EditBody] = []


class ReportBody(LookBody):
    position: Place | None = None
    maps: Annotated[bool, Field(description="attention maps also of a long text")] = False


Format = Annotated[
    Literal["json", "safetensors"] | None,
    Field(description="or by the header `Accept: application/octet-stream`"),
]


class ValuesBody(LookBody):
    sites: Annotated[list[str], Field(min_length=1, max_length=256)]
    format: Format = None


class AttributionBody(LookBody):
    output: Annotated[Id | str | None, Field(description="a token or label, by number or name")] = None
    against: Annotated[Id | str | None, Field(description="what it is compared with")] = None
    position: Place = -1
    heads: Annotated[bool, Field(description="each head by itself, else each attention layer")] = True
    format: Format = None
