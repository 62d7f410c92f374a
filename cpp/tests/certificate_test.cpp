// The certificate accepts an optimal pair and refuses each way of being wrong.
#include "perseus/certificate.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace perseus;

namespace {

// a -> b in a row: a has breakpoints 10, 20 (slope 5), b has 10, 30 (slope 2).
struct Chain {
  CurveSet<std::int64_t> curves;
  ActivityNetwork network;
  std::vector<std::int32_t> curve;

  Chain() {
    const std::vector<std::int64_t> offsets{0, 2, 4};
    const std::vector<double> times{10.0, 20.0, 10.0, 30.0};
    const std::vector<double> energies{50.0, 0.0, 40.0, 0.0};
    const TimeQuantum second = TimeQuantum::for_longest_path(4e15);
    curves = CurveSet<std::int64_t>::from_measured({offsets, times, energies}, second, 1.0);
    const std::vector<Time> longest{20, 30};
    const std::vector<std::uint8_t> fixed{0, 0};
    const std::vector<Dependency> dependencies{{0, 1, 0}};
    REQUIRE(network.build(longest, fixed, dependencies));
    for (std::int32_t arc = 0; arc < network.num_operation_arcs(); ++arc) {
      curve.push_back(network.operation()[static_cast<std::size_t>(arc)]);
    }
  }

  bool holds(std::vector<Time> potential, std::vector<std::int64_t> flow, std::int64_t value, Int128 energy) {
    Certificate<std::int64_t> certificate(network, curves, curve);
    return certificate.holds(potential, flow, value, energy);
  }
};

}  // namespace

TEST_CASE("the chain joins its events into three nodes and two arcs") {
  Chain chain;
  CHECK(chain.network.num_nodes() == 3);
  CHECK(chain.network.num_arcs() == 2);
  CHECK(chain.network.longest_path(chain.network.length()) == 50);
}

TEST_CASE("optimal pairs hold") {
  Chain chain;
  CHECK(chain.holds({0, 20, 50}, {0, 0}, 0, 0));
  CHECK(chain.holds({0, 20, 45}, {2, 2}, 2, 10));
  CHECK(chain.holds({0, 20, 30}, {3, 3}, 3, 40));
  CHECK(chain.holds({0, 12, 22}, {5, 5}, 5, 80));
}

TEST_CASE("each kind of fault is refused") {
  Chain chain;
  CHECK_FALSE(chain.holds({0, 20, 45}, {2, 2}, 2, 11));    // energy
  CHECK_FALSE(chain.holds({0, 20, 45}, {2, 2}, 3, 10));    // value
  CHECK_FALSE(chain.holds({0, 20, 45}, {3, 2}, 2, 10));    // conservation
  CHECK_FALSE(chain.holds({0, 20, 45}, {1, 1}, 1, 10));    // flow below the slope in a segment's interior
  CHECK_FALSE(chain.holds({0, 19, 45}, {2, 2}, 2, 13));    // the dearer operation shortened first
  CHECK_FALSE(chain.holds({0, 9, 19}, {5, 5}, 5, 95));     // below the shortest duration
  CHECK_FALSE(chain.holds({0, 20, 55}, {2, 2}, 2, 0));     // flow where there is slack
  CHECK_FALSE(chain.holds({0, 20, 50}, {-1, -1}, -1, 0));  // negative flow
}
