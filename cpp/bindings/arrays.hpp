// numpy arrays as spans and back.
#pragma once

#include <pybind11/numpy.h>

#include <cstddef>
#include <span>
#include <vector>

namespace perseus {

// Any array-like of one axis, converted if need be.
template <class T>
using Array = pybind11::array_t<T, pybind11::array::c_style | pybind11::array::forcecast>;

template <class T>
std::span<const T> view(const Array<T>& array) {
  return {array.data(), static_cast<std::size_t>(array.size())};
}

template <class T>
pybind11::array_t<T> copied(const std::vector<T>& values) {
  return pybind11::array_t<T>(static_cast<pybind11::ssize_t>(values.size()), values.data());
}

}  // namespace perseus
