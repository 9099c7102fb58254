// Loads the files of make_models.py with LibTorch alone, runs them and checks the numbers. No Python is involved.
//   ./check FOLDER        exit status 1 where a number is wrong

#include <torch/script.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

namespace {

int failures = 0;

void report(const std::string& what, bool right, double worst) {
    std::printf("%-48s %s  (worst difference %.3g)\n", what.c_str(), right ? "ok" : "WRONG", worst);
    failures += right ? 0 : 1;
}

std::vector<double> read_numbers(const std::string& path) {
    std::ifstream file(path);
    TORCH_CHECK(file.good(), "cannot read ", path);
    std::vector<double> numbers;
    for (double number; file >> number;) numbers.push_back(number);
    return numbers;
}

struct Outcome {
    std::int64_t status;
    at::Tensor value;
    int trips;
};

// What ConditionalLoopModule computes, written as a plain C++ loop.
Outcome simulate(const at::Tensor& input, double added) {
    at::Tensor value = input * 2;
    std::int64_t status = 0;
    for (int i = 0; i < 20; ++i) {
        at::Tensor scaled = value * (i + 1) * 0.05;
        if (!at::all(scaled > 0.01).item<bool>()) return {status, scaled, i + 1};
        status = 1;
        value = scaled + added;
    }
    return {status, value, 20};
}

void check_conditional(const std::string& folder, const std::string& file, double added, const at::Tensor& input,
                       int trips, const std::string& what) {
    torch::jit::Module module = torch::jit::load(folder + "/" + file);
    Outcome expected = simulate(input, added);
    TORCH_CHECK(expected.trips == trips, what, ": the simulation ran ", expected.trips, " trips, not ", trips);
    for (int call = 0; call < 3; ++call) {  // the executor specialises after the first calls
        auto fields = module.forward({input}).toTuple()->elements();
        bool right = fields[0].toInt() == expected.status && at::equal(fields[1].toTensor(), expected.value);
        if (call == 2 || !right)
            report(what, right, (fields[1].toTensor() - expected.value).abs().max().item<double>());
        if (!right) return;
    }
}

void check_model(const std::string& folder) {
    torch::jit::Module module = torch::jit::load(folder + "/model.pt");
    std::vector<double> theta = read_numbers(folder + "/theta.txt");
    std::vector<double> expected = read_numbers(folder + "/expected.txt");
    at::Tensor argument = torch::tensor(theta, at::kDouble);
    torch::NoGradGuard no_grad;
    at::Tensor got = module.forward({argument}).toTensor().contiguous().view({-1});
    TORCH_CHECK(got.numel() == static_cast<std::int64_t>(expected.size()), "model.pt gave ", got.numel(), " numbers");
    double worst = 0.0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        double difference = std::abs(got[static_cast<std::int64_t>(i)].item<double>() - expected[i]);
        worst = std::max(worst, difference / std::abs(expected[i]));
    }
    report("model.pt against XLA (relative)", worst < 1e-9, worst);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    const std::string folder = argv[1];
    try {
        check_conditional(folder, "conditional.pt", 10.0, at::full({2, 2}, 5.0), 20, "conditional.pt, all 20 trips");
        check_conditional(folder, "conditional.pt", 10.0, at::zeros({2, 2}), 1, "conditional.pt, break at the first");
        check_conditional(folder, "conditional_decay.pt", 0.0, at::full({2, 2}, 5.0), 3, "conditional_decay.pt, break in the middle");
        check_model(folder);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return failures == 0 ? 0 : 1;
}
