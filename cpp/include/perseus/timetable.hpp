// Earliest starts and latest finishes of the operations of a DAG, kept up to date while durations change.
//
// start(v) is the longest path that ends where v begins; limit(v) the latest finish of v that keeps every path within
// the deadline. slack(v) = limit(v) - start(v) - duration(v): by how much v alone may grow. The makespan is within the
// deadline iff no slack is negative.
//
// Operations are numbered here in a topological order, so every dependency goes from a lower to a higher number. A
// change of one duration is carried on in that order (starts upwards, limits downwards) by a worklist that is a bit set:
// each operation is visited once per change, and only those are visited that have a neighbour that moved.
// A journal, while open, remembers what changes overwrite, so that a group of changes can be undone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perseus/integer.hpp"

namespace perseus {

// Set of small integers that hands out its lowest or highest member.
class BitWorklist {
 public:
  void resize(std::size_t size) { words_.assign(size / 64 + 1, 0); }
  bool empty() const { return count_ == 0; }
  void insert(std::int32_t value) {
    std::uint64_t& word = words_[static_cast<std::size_t>(value) / 64];
    const std::uint64_t bit = std::uint64_t{1} << (static_cast<std::size_t>(value) % 64);
    count_ += (word & bit) == 0 ? 1 : 0;
    word |= bit;
  }
  // Removes and returns the lowest member. No member may be below `from`, and there must be one.
  std::int32_t pop_lowest(std::int32_t from);
  // Removes and returns the highest member. No member may be above `from`, and there must be one.
  std::int32_t pop_highest(std::int32_t from);

 private:
  std::vector<std::uint64_t> words_;
  std::int64_t count_ = 0;
};

// The dependencies of a DAG in both directions.
class PrecedenceGraph {
 public:
  struct Arc {
    std::int32_t peer;        // number of the other operation
    std::int32_t dependency;  // as the caller counts them
    Time latency;             // quanta
  };

  // Returns false if the dependencies contain a cycle. Latencies are zero at first.
  bool build(std::size_t num_operations, std::span<const std::int32_t> predecessor,
             std::span<const std::int32_t> successor);
  // `latency` is per dependency.
  void set_latencies(std::span<const Time> latency);

  std::int32_t size() const { return static_cast<std::int32_t>(operation_.size()); }
  std::int64_t num_dependencies() const { return static_cast<std::int64_t>(in_.size()); }
  // Per number: the operation, as the caller counts them.
  const std::vector<std::int32_t>& operation() const { return operation_; }
  std::span<const Arc> in(std::int32_t v) const { return arcs(in_, in_first_, v); }
  std::span<const Arc> out(std::int32_t v) const { return arcs(out_, out_first_, v); }

 private:
  static std::span<const Arc> arcs(const std::vector<Arc>& all, const std::vector<std::int32_t>& first,
                                   std::int32_t v) {
    const auto begin = static_cast<std::size_t>(first[static_cast<std::size_t>(v)]);
    const auto end = static_cast<std::size_t>(first[static_cast<std::size_t>(v) + 1]);
    return {all.data() + begin, end - begin};
  }

  std::vector<std::int32_t> operation_;
  std::vector<std::int32_t> in_first_;   // per number: its first arc in in_; one more at the end
  std::vector<std::int32_t> out_first_;  // the same for out_
  std::vector<Arc> in_;
  std::vector<Arc> out_;
};

class Timetable {
 public:
  // The graph must outlive the timetable and its copies.
  explicit Timetable(const PrecedenceGraph& graph);

  // Starts from these durations (per number), by two sweeps. Closes the journal.
  void reset(std::span<const Time> durations, Time deadline);

  Time deadline() const { return deadline_; }
  Time duration(std::int32_t v) const { return times_[at(v)].duration; }
  Time start(std::int32_t v) const { return times_[at(v)].start; }
  Time limit(std::int32_t v) const { return times_[at(v)].limit; }
  Time slack(std::int32_t v) const { return limit(v) - start(v) - duration(v); }
  Time makespan() const;

  // Changes one duration and carries the change on.
  void set_duration(std::int32_t v, Time duration);

  // From here on changes are remembered.
  void open_journal();
  // The number of operations of which anything changed since then, and the i-th of them in the order of first change.
  std::size_t num_changed() const { return journal_.size(); }
  std::int32_t changed(std::size_t i) const { return journal_[i].v; }
  // Close the journal; undo_changes takes back all changes since it was opened.
  void keep_changes() { journaling_ = false; }
  void undo_changes();

  // Operations visited by changes so far: the work done.
  std::int64_t visits() const { return visits_; }

 private:
  struct Times {
    Time duration;
    Time start;
    Time limit;
  };
  struct Entry {
    std::int32_t v;
    Times before;
  };

  static std::size_t at(std::int32_t v) { return static_cast<std::size_t>(v); }
  Time earliest_start(std::int32_t v) const;
  Time latest_finish(std::int32_t v) const;
  void move_starts_after(std::int32_t v);
  void move_limits_before(std::int32_t v);
  void remember(std::int32_t v);

  const PrecedenceGraph* graph_;
  Time deadline_ = 0;
  std::vector<Times> times_;
  BitWorklist worklist_;
  bool journaling_ = false;
  std::vector<Entry> journal_;         // of the last journal, each operation once
  std::vector<std::int64_t> entered_;  // per number: the last journal that it was entered in
  std::int64_t journal_number_ = 0;
  std::int64_t visits_ = 0;
};

}  // namespace perseus
