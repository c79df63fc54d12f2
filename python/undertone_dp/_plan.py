from typing import Any

from undertone_dp import _native


def plan(
    mechanism: str,
    *,
    population: int,
    rounds: int,
    report_goal: int = 6500,
    delta: float = 1e-10,
    epsilon: float | None = None,
    rho: float | None = None,
    max_participation: int | None = None,
    separation_share: float = 1.0,
    noise_scale: float = 1.0,
) -> list[dict[str, Any]]:
    """Runs of a production mechanism that a population sustains, for growing report goals; the last is `report_goal`.

    Give the target as `epsilon` at `delta`, or as `rho`. Each run has the keys of `undertone plan --json`. The guarantees
    hold under the zero-out relation for every user who keeps to the participation schema.

    >>> import undertone_dp as udp
    >>> runs = udp.plan("tree", population=10_000_000, rounds=2000, rho=0.5)
    >>> next(run["report_goal"] for run in runs if run["meets_target"])
    3100
    """
    import json

    text = _native._plan(
        mechanism,
        population=population,
        rounds=rounds,
        report_goal=report_goal,
        delta=delta,
        epsilon=epsilon,
        rho=rho,
        max_participation=max_participation,
        separation_share=separation_share,
        noise_scale=noise_scale,
    )
    return json.loads(text)
