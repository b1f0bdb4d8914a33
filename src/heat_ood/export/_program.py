"""``.pt2``: a program of ``torch.export`` with its description, written, and opened where the caller trusts it."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..errors import FormatError, InputError
from ._facts import LARGEST

__all__ = ["ProgramEngine", "archived", "description_in", "opened_program"]

Floats = np.ndarray[Any, Any]
DESCRIPTION = "heat-ood.json"
UNTRUSTED = (
    "holds a program of torch.export, and opening one may run code that somebody put into it (torch unpickles parts of "
    "it). Use a .onnx file, which runs none; or, if it is from nobody but yourself, say so: "
)


def archived(program: torch.export.ExportedProgram, text: str) -> bytes:
    """The bytes of a file that says what it is."""
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={DESCRIPTION: text})
    return buffer.getvalue()


def description_in(content: bytes, what: object) -> str:
    """The description alone, out of the archive that the file is; nothing is unpickled."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            (name,) = (one for one in archive.namelist() if one.endswith(f"extra/{DESCRIPTION}"))
            if archive.getinfo(name).file_size > LARGEST:
                raise ValueError("too large")
            return archive.read(name).decode()
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise FormatError(
            f"{what} is no .pt2 file that says something of a detector. Pass one that heat-ood export wrote."
        ) from error


def opened_program(content: bytes, what: object) -> tuple[torch.export.ExportedProgram, str]:
    """The program and its description; the caller trusts whoever wrote it."""
    extra: dict[str, Any] = {DESCRIPTION: ""}
    try:
        program = torch.export.load(io.BytesIO(content), extra_files=extra)
    except Exception as error:
        raise FormatError(f"{what} is no .pt2 file, or a damaged one. Export it again.") from error
    if not extra[DESCRIPTION]:
        raise FormatError(
            f"{what} is a .pt2 file that says nothing of a detector. Pass one that heat-ood export wrote."
        )
    return program, str(extra[DESCRIPTION])


class ProgramEngine:
    """A graph in torch; any number of threads may run it at once.

    Args:
        program: what is run.
        outputs: their names.
        fpr: the false-alarm rate where none is given.
    """

    def __init__(
        self, program: torch.export.ExportedProgram, columns: Sequence[str], outputs: Sequence[str], fpr: float
    ) -> None:
        self.module = program.module()
        self.columns, self.outputs, self.fpr = tuple(columns), tuple(outputs), fpr
        self.inputs = self.columns or ("pixels",)

    @torch.no_grad()
    def run(self, inputs: Mapping[str, Floats]) -> dict[str, Floats]:
        """All outputs by name."""
        rate = torch.tensor(float(inputs.get("fpr", self.fpr)), dtype=torch.float64)
        given: Any = [torch.from_numpy(np.ascontiguousarray(inputs[name])) for name in self.inputs]
        try:
            found = self.module(given if self.columns else given[0], rate)
        except (AssertionError, RuntimeError) as error:
            raise InputError(f"The program cannot take such inputs ({str(error).splitlines()[0]:.200}).") from error
        return {name: tensor.numpy() for name, tensor in zip(self.outputs, found, strict=True)}
