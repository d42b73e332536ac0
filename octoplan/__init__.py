"""OctoPlan: partition, placement and schedule of pipeline-parallel training, decided together, with a bound.

The verbs of the command line are plain functions::

    import octoplan
    cluster = octoplan.load_cluster("cluster.json")
    model = octoplan.import_model("config.json", octoplan.ImportOptions(cluster=cluster))
    plan = octoplan.compile_plan(model, cluster, octoplan.CompileOptions(microbatches=16))
    octoplan.check(plan, model, cluster)      # [] if valid
    octoplan.simulate(plan, model, cluster).makespan_s
    octoplan.save("plan.json", plan)
"""

from octoplan.checking import check, is_feasible, predict_again, simulate
from octoplan.compile_options import CompileOptions, Progress, compile_options
from octoplan.compiler import compile_plan, emit_model
from octoplan.documents import load_cluster, load_plan
from octoplan.errors import InfeasibleError
from octoplan.explain import ExplainOptions, Explanation, explain_plan
from octoplan.exports import Exported, export_plan
from octoplan.frontier import Frontier, FrontierPoint, compile_frontier, write_frontier
from octoplan.importers import ImportOptions, import_model
from octoplan.job_file import load_job
from octoplan.picture import timeline_of
from octoplan.report.timeline import draw_timeline
from octoplan_schemas import Cluster, InputError, ModelGraph, Plan, save

__all__ = [
    "Cluster",
    "CompileOptions",
    "ExplainOptions",
    "Explanation",
    "Exported",
    "Frontier",
    "FrontierPoint",
    "ImportOptions",
    "InfeasibleError",
    "InputError",
    "ModelGraph",
    "Plan",
    "Progress",
    "check",
    "compile_frontier",
    "compile_options",
    "compile_plan",
    "draw_timeline",
    "emit_model",
    "explain_plan",
    "export_plan",
    "import_model",
    "is_feasible",
    "load_cluster",
    "load_job",
    "load_plan",
    "predict_again",
    "save",
    "simulate",
    "timeline_of",
    "write_frontier",
]
