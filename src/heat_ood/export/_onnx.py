"""ONNX: from a traced program to a file's bytes, and from bytes to a session that nothing else is read for."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from ..errors import FormatError, InputError

__all__ = ["KEY", "OnnxEngine", "converted", "described", "leave_out_unused", "needed", "nodes_of", "quiet", "standard"]

Floats = np.ndarray[Any, Any]
KEY = "heat-ood"
"""Where the description stands among a file's metadata."""
OPSET = 20
DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
"""Of operators that every runtime has."""
LARGEST = 2**31 - 1
"""Bytes of the largest file of this kind."""


def needed(name: str) -> Any:
    """A package of the extra ``onnx``."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(
            f"ONNX files need {name.partition('.')[0]}. Install it: pip install 'heat-ood[onnx]'"
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Without what the converter says to those who write converters."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def converted(program: torch.export.ExportedProgram, inputs: Sequence[str], outputs: Sequence[str], fpr: float) -> Any:
    """A traced program as an ONNX model; ``fpr``, its last input, may be left out."""
    onnx = needed("onnx")
    needed("onnxscript")
    with quiet():
        made: Any = torch.onnx.export(
            program,
            (),
            dynamo=True,
            verbose=False,
            opset_version=OPSET,
            input_names=list(inputs),
            output_names=list(outputs),
            custom_translation_table={torch.ops.aten.sort.stable: stable_sort()},
        )
        model = made.model_proto
    if model.ByteSize() > LARGEST:
        raise InputError(
            f"The graph has {model.ByteSize():,} bytes, and an ONNX file ends at {LARGEST:,}. Export to a .pt2 file."
        )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(fpr, dtype=np.float64), "fpr"))
    name_batch(model)
    leave_out_unused(model)
    return model


def name_batch(model: Any) -> None:
    """Call the number of samples ``n`` wherever it stands; shapes within the graph follow from the others."""
    del model.graph.value_info[:]
    size = model.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == size:
                dim.dim_param = "n"


def leave_out_unused(model: Any) -> None:
    """Ask for no operators that are not used."""
    used = {node.domain for node in nodes_of(model)}
    for entry in [entry for entry in model.opset_import if entry.domain and entry.domain not in used]:
        model.opset_import.remove(entry)


def stable_sort() -> Any:
    """``aten.sort.stable``, which the converter does not know: of equal values ONNX, too, has the first one first."""
    op = needed("onnxscript.onnx_opset").opset20

    def sort(self: Any, *, stable: bool = True, dim: int = -1, descending: bool = False) -> Any:
        count = op.Reshape(op.Gather(op.Shape(self), [dim], axis=0), [1])
        return op.TopK(self, count, axis=dim, largest=int(descending), sorted=1)

    return sort


def described(model: Any, text: str) -> bytes:
    """The bytes of a file that says what it is."""
    for entry in [entry for entry in model.metadata_props if entry.key == KEY]:
        model.metadata_props.remove(entry)
    model.metadata_props.add(key=KEY, value=text)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def graphs_of(model: Any) -> Iterator[Any]:
    """The graph of a model, and those within its nodes; the bodies of its functions count too."""
    waiting = [model.graph, *model.functions]
    while waiting:
        graph = waiting.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                waiting += [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def nodes_of(model: Any) -> Iterator[Any]:
    for graph in graphs_of(model):
        yield from graph.node


def tensors_of(model: Any) -> Iterator[Any]:
    """Every tensor that is kept in a model."""
    for graph in graphs_of(model):
        yield from getattr(graph, "initializer", ())
        for sparse in getattr(graph, "sparse_initializer", ()):
            yield from (sparse.values, sparse.indices)
        for node in graph.node:
            for attribute in node.attribute:
                yield from (*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors)
                for sparse in (
                    *([attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []),
                    *attribute.sparse_tensors,
                ):
                    yield from (sparse.values, sparse.indices)


def standard(content: bytes, what: object) -> str:
    """What a file says of itself, if it is ONNX whose operators are standard and whose tensors are all within it."""
    onnx = needed("onnx")
    again = "Pass a file that heat-ood export wrote."
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # whatever protobuf finds
        raise FormatError(f"{what} is no ONNX file, or a damaged one. {again}") from error
    own = {function.domain for function in model.functions}
    if strange := [node.domain for node in nodes_of(model) if node.domain not in DOMAINS and node.domain not in own]:
        raise FormatError(f"{what} asks for operators of {strange[0]!r:.60}, which may be anything. {again}")
    if any(t.data_location == onnx.TensorProto.EXTERNAL or t.external_data for t in tensors_of(model)):
        raise FormatError(f"{what} asks for other files to be read, which is refused. {again}")
    found = [entry.value for entry in model.metadata_props if entry.key == KEY]
    if len(found) != 1:
        raise FormatError(f"{what} is an ONNX file that says nothing of a detector. {again}")
    return str(found[0])


class OnnxEngine:
    """A graph in onnxruntime, on the CPU; any number of threads may run it at once.

    Args:
        content: the bytes of the file, as :func:`standard` passed them.
        what: the file, for errors.
        threads: how many it computes with; None leaves it to onnxruntime.
    """

    def __init__(self, content: bytes, what: object, threads: int | None = None) -> None:
        runtime = needed("onnxruntime")
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # it would slow down all else here
        if threads is not None:
            options.intra_op_num_threads = threads
        try:
            self.session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            line = next(iter(str(error).splitlines()), "")[:200]
            raise FormatError(
                f"onnxruntime cannot open {what} ({line}). Export it again, or upgrade onnxruntime."
            ) from error
        self.inputs = tuple(one.name for one in self.session.get_inputs())
        self.outputs = tuple(one.name for one in self.session.get_outputs())

    def run(self, inputs: Mapping[str, Floats]) -> dict[str, Floats]:
        """All outputs by name."""
        return dict(zip(self.outputs, self.session.run(None, dict(inputs)), strict=True))
