"""The operations of one training iteration and what each must wait for, as one immutable value."""

from perseus.dag.pipeline_dag import PipelineDag
from perseus.orders.notation import Operation

__all__ = ["Operation", "PipelineDag"]
