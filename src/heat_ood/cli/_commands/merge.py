"""``heat-ood merge``: close a folder of shards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .._options import Json
from .._output import emit, facts, show
from .._registry import command
from .._storing import summary, tell

__all__ = ["merge"]


@command(order=25, interrupted="run it again")
def merge(
    folder: Annotated[Path, typer.Argument(help="What extract --shard or score --shard wrote to.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Read the features of all shards and compare their checksums.")
    ] = False,
    json: Json = False,
) -> None:
    """Close a store of shards, or join the scores of shards, once all of them are there.

    Features are not copied: a manifest is written, and the folder opens as one store. Scores are written as one table,
    scores.parquet or scores.csv, in the folder. It can be run again at any time.

    [dim]Example:[/dim]

      heat-ood merge features/train
    """
    from ...evaluation import is_scores, merge_scores
    from ...features import is_sharded, merge_shards, read_closing
    from ...files import url_of
    from .._score_files import fetched_scores
    from .._sidecar import merge_sidecars, merge_sidecars_at

    url = url_of(folder)
    if url is not None:
        scores = fetched_scores(url)
        if scores is None:
            features = merge_shards(url, verify=verify)
            tell({**summary(features, url), "shards": merge_sidecars_at(url)}, json)
            return
        folder = scores.local
    if is_scores(folder) and not is_sharded(folder):
        file, known = merge_scores(folder)
        if url is not None and scores is not None:
            scores.send([file.name])
        told: dict[str, Any] = {"scores": str(file) if url is None else f"{url}/{file.name}", **known}
        if json:
            emit(told)
        else:
            show(facts({name: value for name, value in told.items() if value is not None}))
        return
    features = merge_shards(folder, verify=verify)
    count = len(read_closing(folder)[0].members)
    merge_sidecars(folder, count)
    tell({**summary(features, folder), "shards": count}, json)
