"""Orders of the schedules, their sizes, and the data dependencies of any set of operations."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from perseus.errors import DagError, ScheduleError
from perseus.orders import (
    KINDS,
    LETTERS,
    MAX_MICROBATCH,
    MAX_STAGE,
    NO_MICROBATCH,
    SCHEDULES,
    OperationTable,
    RankOrder,
    Schedule,
    ScheduleSizes,
    data_edges,
    find_schedule,
    kind_name,
    ordered_kinds,
)
from perseus.orders.notation import (
    NameIndex,
    Operation,
    OperationName,
    parse_operation,
    parse_orders,
    table_of_names,
)


def texts(name: str, num_stages: int, num_microbatches: int) -> list[str]:
    schedule = find_schedule(name)
    orders = schedule.rank_orders(schedule.sizes(num_stages, num_microbatches))
    return [" ".join(f"{LETTERS[code]}{m}" for code, m in zip(o.kind_code, o.microbatch, strict=True)) for o in orders]


def table_of_texts(*orders: str) -> OperationTable:
    parsed = parse_orders(orders)
    ranks = [rank for rank, order in enumerate(parsed) for _ in order]
    return table_of_names([name for order in parsed for name in order], ranks)


def edge_texts(*orders: str) -> set[str]:
    """Return the data dependencies as text such as "0F1>1F1"."""
    table = table_of_texts(*orders)

    def text(row: int) -> str:
        letter = LETTERS[KINDS.index(table.kinds[table.kind_code[row]])]
        return f"{table.stage[row]}{letter}{table.microbatch[row]}"

    edges = data_edges(table)
    assert edges.dtype == np.int32
    found = [f"{text(before)}>{text(after)}" for before, after in edges.tolist()]
    assert len(set(found)) == len(found)
    return set(found)


# -- schedules ---------------------------------------------------------------------------------------------


def test_gpipe_runs_all_forwards_then_all_backwards() -> None:
    assert texts("gpipe", 2, 3) == ["F0 F1 F2 B0 B1 B2"] * 2


def test_1f1b_warms_up_then_alternates_then_drains() -> None:
    # Written out by hand from figure 4 of the SC 2021 paper, for 4 stages and 8 microbatches.
    assert texts("1f1b", 4, 8) == [
        "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7",
        "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7",
        "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7",
        "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7",
    ]


def test_1f1b_takes_fewer_microbatches_than_stages() -> None:
    assert texts("1f1b", 4, 2) == ["F0 F1 B0 B1"] * 3 + ["F0 B0 F1 B1"]


@pytest.mark.parametrize("name", SCHEDULES)
def test_one_stage_and_one_microbatch(name: str) -> None:
    assert texts(name, 1, 1) == ["F0 B0"]


@pytest.mark.parametrize("name", SCHEDULES)
def test_order_of_a_rank_holds_int32_of_one_length(name: str) -> None:
    for order in SCHEDULES[name].rank_orders(SCHEDULES[name].sizes(3, 5)):
        assert {array.dtype for array in order} == {np.dtype(np.int32)}
        assert len({array.shape for array in order}) == 1


@pytest.mark.parametrize("name", SCHEDULES)
def test_closed_forms_and_kinds_agree_with_the_table(name: str) -> None:
    schedule = SCHEDULES[name]
    for sizes in (schedule.sizes(1, 1), schedule.sizes(4, 8), schedule.sizes(5, 2)):
        table = schedule.table(sizes)
        assert len(table) == schedule.num_operations(sizes)
        assert table.rank.max() + 1 == schedule.num_ranks(sizes)
        # The kinds are in the one fixed order, so that equal pipelines of two origins have equal codes.
        assert table.kinds == schedule.kinds == ordered_kinds({schedule.kinds[c] for c in table.kind_code})


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_names_itself_and_its_source(name: str) -> None:
    assert SCHEDULES[name].name == name
    assert SCHEDULES[name].source


def test_registry_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        SCHEDULES["mine"] = SCHEDULES["1f1b"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("name", "nearest"), [("1f1", "1f1b"), ("1F1B", "1f1b"), ("g-pipe", "gpipe"), ("GPipe", "gpipe")]
)
def test_unknown_name_lists_the_names_and_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ScheduleError, match=rf"unknown schedule '{name}'.*gpipe, 1f1b.*did you mean '{nearest}'"):
        find_schedule(name)


@pytest.mark.parametrize("name", ["zzz", "", None, 3, ["gpipes"] * 9])
def test_unknown_name_without_a_near_one(name: object) -> None:
    with pytest.raises(ScheduleError, match=r"the schedules are gpipe, 1f1b$"):
        find_schedule(name)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", ["num_stages", "num_microbatches", "num_chunks"])
@pytest.mark.parametrize(
    ("value", "found"),
    [
        (0, "0;"),
        (-3, "-3;"),
        (True, "a bool"),
        (np.True_, "a bool"),
        (4.0, "type float"),
        (np.float64(4), "type float64"),
        ("4", "type str"),
        ([4], "type list"),
        (10**30, "1000000000000000000000000000000;"),
    ],
)
@pytest.mark.parametrize("name", SCHEDULES)
def test_size_is_an_integer_of_at_least_one(name: str, size: str, value: object, found: str) -> None:
    sizes: dict[str, object] = {"num_stages": 4, "num_microbatches": 8, "num_chunks": 1, size: value}
    with pytest.raises(ScheduleError, match=f"{size} is .*{found}.*it must be an integer from 1 to") as error:
        SCHEDULES[name].sizes(**sizes)  # type: ignore[arg-type]
    assert isinstance(error.value, DagError)


@pytest.mark.parametrize("size", ["num_stages", "num_microbatches"])
def test_size_none_is_refused(size: str) -> None:
    with pytest.raises(ScheduleError, match="type NoneType"):
        SCHEDULES["1f1b"].sizes(**{"num_stages": 4, "num_microbatches": 8, size: None})  # type: ignore[arg-type]


def test_size_may_be_a_numpy_integer() -> None:
    sizes = SCHEDULES["1f1b"].sizes(np.int64(4), np.uint8(8))  # type: ignore[arg-type]
    assert sizes == ScheduleSizes(num_stages=4, num_microbatches=8)
    assert type(sizes.num_stages) is int


def test_one_chunk_may_be_given_and_more_may_not() -> None:
    assert SCHEDULES["1f1b"].sizes(4, 8, 1).num_chunks == 1
    with pytest.raises(ScheduleError, match="num_chunks is 2, but this schedule gives each rank exactly one stage"):
        SCHEDULES["1f1b"].sizes(4, 8, 2)


def test_too_many_operations_to_number() -> None:
    with pytest.raises(ScheduleError, match="2147483648 operations are too many"):
        SCHEDULES["1f1b"].sizes(1024, 2**20)
    SCHEDULES["1f1b"].sizes(1024, 2**20 - 1)


# -- data dependencies -------------------------------------------------------------------------------------


def test_dependencies_of_forward_and_backward() -> None:
    assert edge_texts("F0 B0", "F0 B0") == {"0F0>1F0", "0F0>0B0", "1F0>1B0", "1B0>0B0"}


def test_dependencies_of_a_split_backward() -> None:
    assert edge_texts("F0 I0 W0", "F0 I0 W0") == {
        "0F0>1F0", "0F0>0I0", "1F0>1I0", "1I0>0I0", "0I0>0W0", "1I0>1W0",
    }  # fmt: skip


def test_full_and_split_backwards_may_meet_at_neighbours() -> None:
    assert edge_texts("F0 B0", "F0 I0 W0") >= {"1I0>0B0"}
    assert edge_texts("F0 I0 W0", "F0 B0") >= {"1B0>0I0"}


def test_recompute_stands_between_forward_and_backward() -> None:
    assert edge_texts("F0 R0 B0") == {"0F0>0R0", "0R0>0B0"}
    assert edge_texts("F0 R0 I0 W0") == {"0F0>0R0", "0R0>0I0", "0I0>0W0"}


def test_microbatches_that_are_not_recomputed_keep_their_forward() -> None:
    assert edge_texts("F0 F1 R0 B0 B1") == {"0F0>0R0", "0R0>0B0", "0F1>0B1"}


def test_dependencies_follow_stages_not_ranks() -> None:
    # Rank 0 holds the stages 0 and 3, rank 1 the stages 1 and 2, as in a V.
    assert edge_texts("0F0 3F0 3B0 0B0", "1F0 2F0 2B0 1B0") >= {"0F0>1F0", "1F0>2F0", "2F0>3F0", "1B0>0B0", "3B0>2B0"}


def test_stage_on_two_ranks_with_microbatches_of_their_own() -> None:
    # Two directions through the same stages, as in DualPipe.
    found = edge_texts("0F0 1F9 1B9 0B0", "1F0 0F9 0B9 1B0")
    assert found == {
        "0F0>1F0", "0F9>1F9", "0F0>0B0", "1F0>1B0", "0F9>0B9", "1F9>1B9", "1B0>0B0", "1B9>0B9",
    }  # fmt: skip


def test_gaps_in_stages_and_microbatches_make_no_edges() -> None:
    assert edge_texts("0F0 5F0 5B1") == set()


def test_other_kinds_and_operations_without_microbatch_have_no_data_dependencies() -> None:
    table = table_of_names(
        [OperationName("load", 0, 0), OperationName("forward", 0, -1), OperationName("backward", 0, -1)], [0, 0, 0]
    )
    assert data_edges(table).shape == (0, 2)


def test_sparse_numbers_take_little_memory_and_give_the_same_edges() -> None:
    far = MAX_MICROBATCH - 1
    found = edge_texts(f"0F0 0F{far} 0B0 0B{far}", f"1F0 1F{far} 1B0 1B{far}", f"{MAX_STAGE}F7")
    assert found == {f"{edge.replace('m', str(m))}" for m in (0, far) for edge in (
        "0Fm>1Fm", "0Fm>0Bm", "1Fm>1Bm", "1Bm>0Bm",
    )}  # fmt: skip


def test_sparse_numbers_of_unknown_kinds_only() -> None:
    table = table_of_names([OperationName("load", MAX_STAGE, MAX_MICROBATCH)], [0])
    assert data_edges(table).shape == (0, 2)


# -- room for schedules with virtual chunks ------------------------------------------------------------------


def test_schedule_with_several_stages_on_a_rank_is_only_a_function() -> None:
    def looped(sizes: ScheduleSizes) -> list[RankOrder]:
        """Breadth first through the chunks: stage = chunk * ranks + rank; input and weight gradients apart."""
        orders = []
        for rank in range(sizes.num_stages):
            stages = [chunk * sizes.num_stages + rank for chunk in range(sizes.num_chunks)]
            runs = [(0, s) for s in stages] + [(code, s) for s in stages[::-1] for code in (2, 3)]
            m = np.arange(sizes.num_microbatches, dtype=np.int32)
            orders.append(
                RankOrder(
                    kind_code=np.repeat(np.array([code for code, _ in runs], dtype=np.int32), m.size),
                    stage=np.repeat(np.array([stage for _, stage in runs], dtype=np.int32), m.size),
                    microbatch=np.tile(m, len(runs)),
                )
            )
        return orders

    schedule = Schedule(
        name="looped",
        source="a test",
        kinds=("forward", "input_grad", "weight_grad"),
        rank_orders=looped,
        num_operations=lambda sizes: 3 * sizes.num_stages * sizes.num_chunks * sizes.num_microbatches,
        check=lambda sizes: None,
        default_chunks=2,
    )
    sizes = schedule.sizes(2, 3)
    table = schedule.table(sizes)
    assert len(table) == schedule.num_operations(sizes) == 36
    assert table.kinds == ("forward", "input_grad", "weight_grad")
    assert set(zip(table.rank.tolist(), table.stage.tolist(), strict=True)) == {(0, 0), (0, 2), (1, 1), (1, 3)}
    # F-F and I-I between 4 stages, F-I and I-W within each, for 3 microbatches.
    assert len(schedule.data_edges(table)) == 3 * (3 + 3 + 4 + 4)


# -- notation ----------------------------------------------------------------------------------------------


def test_kinds_have_letters_and_an_order() -> None:
    assert [kind_name(letter) for letter in LETTERS] == list(KINDS)
    assert kind_name("load") == "load"
    assert ordered_kinds({"sync", "backward", "load", "forward"}) == ("forward", "backward", "load", "sync")


@pytest.mark.parametrize(
    ("item", "name"),
    [
        ("F3", ("forward", 7, 3)),
        ("2B03", ("backward", 2, 3)),
        ("0R1", ("recompute", 0, 1)),
        ("optimizer", ("optimizer", 7, NO_MICROBATCH)),
        ("all_reduce", ("all_reduce", 7, NO_MICROBATCH)),
        (("I", 1, 2), ("input_grad", 1, 2)),
        (["weight_grad", 1, 2], ("weight_grad", 1, 2)),
        (("load", 1), ("load", 1, NO_MICROBATCH)),
        (("load", 1, None), ("load", 1, NO_MICROBATCH)),
        (("load", 1, np.int64(-1)), ("load", 1, NO_MICROBATCH)),
        (("F", np.int32(1), np.uint8(2)), ("forward", 1, 2)),
        (Operation(stage=1, microbatch=2, kind="forward", rank=5), ("forward", 1, 2)),
    ],
)
def test_forms_of_an_operation(item: object, name: tuple[str, int, int]) -> None:
    assert parse_operation(item, "it", default_stage=7) == name


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("X3", "it is 'X3'; write an operation as"),
        ("f3", "it is 'f3'; write an operation as"),
        ("F-1", "it is 'F-1'; write"),
        ("F٣", "it is 'F٣'; write"),
        ("", "it is ''; write"),
        ("F0 ", "it is 'F0 '; write"),
        ("load0", "it is 'load0'; write"),
        ("F9999999999", "the microbatch of it is 9999999999; it must be an integer from 0 to 2147483647"),
        ("F" + "9" * 10_000, "the microbatch of it is 99999999999999999999; it must be"),
        (3, "it is 3; write"),
        (None, "it is None; write"),
        (("F",), r"it is \('F',\); write"),
        (("F", 0, 1, 2), r"it is \('F', 0, 1, 2\); write"),
        (("X", 0, 1), "the kind of it is 'X'; it must be a name"),
        (("", 0, 1), "the kind of it is ''"),
        ((0, 0, 1), "the kind of it is 0"),
        (("F", -1, 0), "the stage of it is -1; it must be an integer from 0 to 1048575"),
        (("F", MAX_STAGE + 1, 0), "the stage of it is 1048576"),
        (("F", 0.0, 0), "the stage of it is 0.0, of type float; it must be an integer"),
        (("F", True, 0), "the stage of it is True, of type bool"),
        (("F", 0, 1.5), "the microbatch of it is 1.5, of type float"),
        (("F", 0, False), "the microbatch of it is False, of type bool"),
        (("F", 0, -2), "the microbatch of it is -2"),
        (("F", 0, "1"), "the microbatch of it is '1', of type str"),
        (("F", None, 1), "the stage of it is None"),
    ],
)
def test_unreadable_operation(item: object, message: str) -> None:
    with pytest.raises(DagError, match=message):
        parse_operation(item, "it", default_stage=0)


@pytest.mark.parametrize("text", ["F3", "optimizer"])
def test_text_without_stage_where_there_is_no_rank(text: str) -> None:
    with pytest.raises(DagError, match=f"it is '{text}', which names no stage"):
        parse_operation(text, "it")


def test_names_are_written_for_people() -> None:
    assert str(OperationName("forward", 1, 2)) == "forward(stage 1, microbatch 2)"
    assert str(OperationName("optimizer", 1, NO_MICROBATCH)) == "optimizer(stage 1)"


def test_index_of_names() -> None:
    names = [OperationName("forward", 0, 0), OperationName("sync", 0, -1), OperationName("sync", 0, -1)]
    index = NameIndex(names, str)
    assert index.row(names[0], "it") == 0
    assert index.rows(names[1]) == [1, 2]
    assert index.rows(OperationName("forward", 9, 9)) == []
    with pytest.raises(DagError, match=r"it is sync\(stage 0\), which occurs 2 times; name it by its index, one of"):
        index.row(names[1], "it")
    with pytest.raises(DagError, match=r"it is forward\(stage 9, microbatch 9\), which is not among the operations"):
        index.row(OperationName("forward", 9, 9), "it")


def test_operation_can_be_pickled() -> None:
    operation = Operation(stage=1, microbatch=2, kind="forward", rank=3)
    assert pickle.loads(pickle.dumps(operation)) == operation
