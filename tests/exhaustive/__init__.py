"""The true optimum of tiny problems: every partition, every placement, every order.

Written from the contract (section 4) alone, to hold bounds, solvers and the compiler against; nothing is shared with
them but the files' schemas. `best_plan` tells what is searched and what is proved, `orders` why the search of one
partition and placement leaves nothing out.

numba caches a kernel by its own file: after editing one module here, delete the package's ``__pycache__``.
"""

from tests.exhaustive.best_plan import Optimum, find_optimum, optimum

__all__ = ["Optimum", "find_optimum", "optimum"]
