"""Files of less precision: a model's weights in 16 or 8 bits, and how far that moves what is said."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..metrics import auroc
from ._facts import Reduced
from ._onnx import leave_out_unused, needed, nodes_of, quiet
from ._probe import spread_of

if TYPE_CHECKING:
    from ._opened import Exported

__all__ = ["disagreement", "reduced_model"]

Floats = np.ndarray[Any, Any]
SMALL = 256
"""Tensors of fewer numbers stay as they are: there is nothing to save."""
BACKBONE = "network."
"""How the names of the model's own weights begin; those of the detector stay as they are."""
QUANTISED = ("MatMul", "Gemm", "Conv")


def reduced_model(model: Any, how: str) -> Any:
    """The same graph with the model's weights reduced; the detector and its calibration stay in full precision."""
    copy = type(model)()
    copy.CopyFrom(model)
    return quantised(copy) if how == "quantised" else halved(copy)


def halved(model: Any) -> Any:
    """Weights in float16, turned to float32 when the file is opened."""
    onnx = needed("onnx")
    casts = []
    for tensor in model.graph.initializer:
        wide = tensor.data_type == onnx.TensorProto.FLOAT and np.prod(tensor.dims) >= SMALL
        if not wide or not tensor.name.startswith(BACKBONE):
            continue
        values = onnx.numpy_helper.to_array(tensor)
        if np.abs(values).max() > np.finfo(np.float16).max:
            continue
        name = tensor.name
        tensor.CopyFrom(onnx.numpy_helper.from_array(values.astype(np.float16), f"{name}.half"))
        casts.append(onnx.helper.make_node("Cast", [f"{name}.half"], [name], f"{name}.full", to=onnx.TensorProto.FLOAT))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def quantised(model: Any) -> Any:
    """By onnxruntime's dynamic quantisation: weights of 8 bits, and what flows through is quantised as it flows."""
    quantization, onnx = needed("onnxruntime.quantization"), needed("onnx")
    weights = {tensor.name for tensor in model.graph.initializer if tensor.name.startswith(BACKBONE)}
    for i, node in enumerate(model.graph.node):
        node.name = node.name or f"node_{i}"
    own = [node.name for node in nodes_of(model) if node.op_type in QUANTISED and weights.intersection(node.input)]
    if not own:
        raise InputError("The model has no layer that could be quantised. Leave out quantise.")
    with tempfile.TemporaryDirectory(prefix="heat-ood-") as folder, quiet():
        before, after = Path(folder) / "before.onnx", Path(folder) / "after.onnx"
        onnx.save_model(model, before)
        quantization.quantize_dynamic(
            before,
            after,
            op_types_to_quantize=list(QUANTISED),
            nodes_to_quantize=own,
            weight_type=quantization.QuantType.QUInt8,
            extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
        )
        made = onnx.load_model(after)
    leave_out_unused(made)
    return made


def disagreement(
    exact: Exported, reduced: Exported, how: str, fpr: float, known: Iterable[Floats], strange: Iterable[Floats]
) -> Reduced:
    """How far two files are apart on ID and OOD pixels."""
    parts = [np.concatenate(list(both(exact, reduced, pixels)), 1) for pixels in (known, strange)]
    scores = np.concatenate([part[:2] for part in parts], 1)
    p_values = np.concatenate([part[2:] for part in parts], 1)
    off = np.abs(scores[0] - scores[1]) / spread_of(exact.calibration)
    changed = (p_values[0] <= fpr) != (p_values[1] <= fpr)
    full, less = (auroc(parts[0][i], parts[1][i]) for i in (0, 1))
    return Reduced(
        how,
        scores.shape[1],
        float(off.max()),
        float(np.quantile(off, 0.95)),
        float(changed.mean()),
        float(full),
        float(less),
    )


def both(exact: Exported, reduced: Exported, pixels: Iterable[Floats]) -> Iterator[Floats]:
    """Scores and p-values by both files, (4, n), a batch at a time."""
    found = False
    for batch in pixels:
        found = True
        said = [judge.judge(batch) for judge in (exact, reduced)]
        yield np.stack([*(one.score.astype(float) for one in said), *(np.asarray(one.p_value) for one in said)])
    if not found:
        raise InputError("There are no images to compare. Pass ID and OOD images.")
