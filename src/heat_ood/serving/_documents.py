"""The interface as OpenAPI describes it: what may be sent, what comes back, with examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Drifted", "Failed", "Info", "Offered", "Recent", "Scored", "Status", "body_of", "errors"]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Failed(Model):
    """Why there is no answer, and what to do."""

    error: str = Field(examples=["The image 'cat.png' cannot be read: it ends too early. Send a whole image."])


class Predicted(Model):
    """The likeliest class, as the model has it."""

    index: int
    name: str
    probability: float


class Term(Model):
    name: str
    value: float


class Result(Model):
    """What is said of one sample; what there is not, is null."""

    name: str | None = Field(description="of the file")
    score: float = Field(description="higher = more out-of-distribution")
    p_value: float | None = Field(description="the share of held-out samples at least as unusual")
    ood: bool | None = Field(description="whether the p-value is at most the false-alarm rate")
    verdict: str | None
    class_: Predicted | None = Field(alias="class")
    energies: dict[str, float | None]
    terms: list[Term] | None = Field(description="parts that add up to the score, where it is a mean of energies")


SCORED: Any = {
    "fpr": 0.05,
    "results": [
        {
            "name": "cat.png",
            "score": -0.31,
            "p_value": 0.62,
            "ood": False,
            "verdict": "like the training data",
            "class": {"index": 3, "name": "cat", "probability": 0.93},
            "energies": {"prior/gmm": 12.5, "prior/energy": -9.1, "residual/joint": -0.02},
            "terms": [
                {"name": "gmm", "value": -0.2},
                {"name": "energy", "value": -0.09},
                {"name": "correction", "value": -0.02},
            ],
        }
    ],
}


class Scored(Model):
    """The results in the order of the samples, at the false-alarm rate that was asked for."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [SCORED]})

    fpr: float
    results: list[Result]


class Status(Model):
    status: str = Field(examples=["ok"])


class Histogram(Model):
    edges: list[float]
    counts: list[int]


class Calibrated(Model):
    samples: int
    histogram: Histogram
    thresholds: dict[str, float] = Field(description="the score above which a sample is OOD, by false-alarm rate")


class Limits(Model):
    body_bytes: int
    pixels: int
    batch: int
    seconds: float
    queue: int


class Info(Model):
    """What is served: the detector, what it takes, its calibration, the limits of a request."""

    about: dict[str, Any]
    classes: list[str] | None
    preprocessing: dict[str, Any] | None
    columns: list[str]
    takes: list[str]
    fpr: float
    limits: Limits
    calibration: Calibrated | None
    version: str


class Drifted(Model):
    """Evidence that the stream stopped looking like the calibration data; by chance it ever reaches E with 1/E."""

    samples: int
    evidence: float
    log10_evidence: float
    largest_log10_evidence: float
    alarm: bool
    alarm_at: float
    alarm_since: float | None = Field(description="Unix time")
    alarm_after_samples: int | None
    likely_start: int | None = Field(description="the number of the sample from which the evidence grew")
    started: float
    calibration_samples: int
    p_values: list[float] = Field(description="the last ones, among calibration and stream")


class Judgement(Model):
    time: float
    score: float
    p_value: float | None
    ood: bool | None


class Recent(Model):
    """The last samples that were judged, the newest last, and the drift."""

    results: list[Judgement]
    drift: Drifted | None


class Offer(Model):
    name: str
    url: str = Field(examples=["/samples/0"])


class Offered(Model):
    """Images to try."""

    samples: list[Offer]


BINARY = {"schema": {"type": "string", "format": "binary"}}
ROWS = {"type": "array", "minItems": 1, "items": {"type": "array", "minItems": 1, "items": {"type": "number"}}}


def body_of(columns: Sequence[str], images: bool) -> dict[str, Any]:
    """The bodies that are read, of a judge of some columns, and of images or not."""
    files = {"type": "array", "minItems": 1, "items": {"type": "string", "format": "binary"}}
    about = "Image files in parts of any name; or a .npy file a column, in a part of its name."
    parts = {"image": files} if images else {name: {"type": "string", "format": "binary"} for name in columns}
    form = {"type": "object", "description": about, "properties": parts, "required": list(parts)}
    found: dict[str, Any] = {"multipart/form-data": {"schema": form}}
    if images:
        found |= {"image/*": BINARY, "application/octet-stream": BINARY}
    if columns:
        rows = {"type": "object", "properties": dict.fromkeys(columns, ROWS), "required": list(columns)}
        found["application/json"] = {
            "schema": {
                "type": "object",
                "properties": {"features": {**rows, "additionalProperties": False}},
                "required": ["features"],
                "additionalProperties": False,
            },
            "examples": {
                "two samples": {"value": {"features": {name: [[0.1, 0.2], [0.3, 0.4]] for name in columns}}},
            },
        }
    if len(columns) == 1:
        found["application/x-npy"] = BINARY
    return {"required": True, "description": "An image, several, or features.", "content": found}


REASONS = {
    400: "The body cannot be read.",
    401: "The token is missing or wrong.",
    403: "Another site's page asked.",
    404: "There is no such thing.",
    408: "The body took too long to come.",
    413: "The body, or the number of samples, is too large.",
    415: "The content type is not read here.",
    422: "What was sent cannot be judged.",
    503: "There is too much to do: ask again after Retry-After seconds.",
}


def errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The failures that an operation may answer with."""
    return {code: {"model": Failed, "description": REASONS[code]} for code in codes}
