// The simulated driver's own interface (C), beside NVML's: make a machine, run kernels on it, order faults,
// look at what NVML doesn't show. Python's side is perseus.device.simulated.
//
// Every function returns 0 or a positive result on success and a negative number on failure.
#pragma once

#include <cstdint>

extern "C" {

/// Make a machine of `count` GPUs in the file `path`. `models` are keys divided by commas: one for all, or one a GPU.
/// `time_scale` 1: real time; > 1: faster; 0: virtual time. -1: bad count; -2: unknown model; -3: the file can't be written.
int perseus_sim_create(const char* path, const char* models, unsigned count, double time_scale, double seed);
/// Use the machine in `path` in this process, instead of the one named by PERSEUS_SIMULATED_GPU_STATE.
int perseus_sim_attach(const char* path);

double perseus_sim_now(void);
/// Virtual time: move forward by `seconds`. Otherwise: sleep for as many simulated seconds.
int perseus_sim_sleep(double seconds);

/// Say that this process has a context on the GPU (open = 1), or has none any more. Dead processes are forgotten.
int perseus_sim_context(unsigned gpu, int open);
/// Queue a kernel; the ticket (> 0) is for the calls below.
std::int64_t perseus_sim_launch(unsigned gpu, double work_s, double memory_share, double activity);
/// Time until the kernel ends if no clock changes; 0 when it has ended.
double perseus_sim_time_left(unsigned gpu, std::int64_t ticket);
/// Wait for the kernel's end. `start_s` and `end_s` (may be null) are its times on the GPU, as device events give them.
int perseus_sim_wait(unsigned gpu, std::int64_t ticket, double* start_s, double* end_s);

/// The model's exact time and power of a kernel at a clock, without noise and throttling.
double perseus_sim_true_time(unsigned gpu, double mhz, double work_s, double memory_share);
double perseus_sim_true_power(unsigned gpu, double mhz, double activity);

/// Change an option of a GPU (names: see GpuOptions and control.cpp).
int perseus_sim_set(unsigned gpu, const char* name, double value);
/// Read an option, or a quantity: "energy_j", "locked_min_mhz", ... NaN when there is no such name.
double perseus_sim_get(unsigned gpu, const char* name);
/// As a driver reload: the counter starts again at 0, clocks and the power limit go back to their defaults.
int perseus_sim_reload(unsigned gpu);

/// From its `skip`-th call on, `function` (empty: all) about `gpu` (-1: all) answers `code`, `times` times (-1: for ever).
int perseus_sim_fault(const char* function, int gpu, int code, long skip, long times);
int perseus_sim_clear_faults(void);

/// The audit of calls that change settings: how many so far, and one of the last 4096.
std::int64_t perseus_sim_call_count(void);
int perseus_sim_call(std::int64_t number, double* time_s, std::int32_t* fields6);
}
