#include "rules.h"

#include <math.h>

// The constants of tf_keras, as the floats that they are there.
static const double beta_1 = (double)0.9f, beta_2 = (double)0.999f, epsilon = (double)1e-7f;
static const double momentum = (double)0.8f, rho_adadelta = (double)0.95f,
                    rho_rmsprop = (double)0.9f;

static void exact_sgd(Weight *weight, double g, double lr, int t)
{
    (void)t;
    weight->w -= lr * g;
}

static void exact_momentum(Weight *weight, double g, double lr, int t)
{
    (void)t;
    weight->a = momentum * weight->a - lr * g;
    weight->w += weight->a;
}

static void exact_nesterov(Weight *weight, double g, double lr, int t)
{
    (void)t;
    weight->a = momentum * weight->a - lr * g;
    weight->w += momentum * weight->a - lr * g;
}

static void exact_adam(Weight *weight, double g, double lr, int t)
{
    weight->a = beta_1 * weight->a + (1 - beta_1) * g;
    weight->b = beta_2 * weight->b + (1 - beta_2) * g * g;
    double correction = sqrt(1 - pow(beta_2, t)) / (1 - pow(beta_1, t));
    weight->w -= lr * correction * weight->a / (sqrt(weight->b) + epsilon);
}

static void exact_adadelta(Weight *weight, double g, double lr, int t)
{
    (void)t;
    weight->a = rho_adadelta * weight->a + (1 - rho_adadelta) * g * g;
    double delta = sqrt(weight->b + epsilon) / sqrt(weight->a + epsilon) * g;
    weight->b = rho_adadelta * weight->b + (1 - rho_adadelta) * delta * delta;
    weight->w -= lr * delta;
}

static void exact_adagrad(Weight *weight, double g, double lr, int t)
{
    if (t == 1)
        weight->a = 0.1;
    weight->a += g * g;
    weight->w -= lr * g / sqrt(weight->a + epsilon);
}

static void exact_rmsprop(Weight *weight, double g, double lr, int t)
{
    (void)t;
    weight->a = rho_rmsprop * weight->a + (1 - rho_rmsprop) * g * g;
    weight->w -= lr * g / sqrt(weight->a + epsilon);
}

static void exact_rmsprop_momentum(Weight *weight, double g, double lr, int t)
{
    (void)t;
    weight->a = rho_rmsprop * weight->a + (1 - rho_rmsprop) * g * g;
    weight->b = momentum * weight->b + lr * g / sqrt(weight->a + epsilon);
    weight->w -= weight->b;
}

static Optimizer *plain_momentum(float learning_rate)
{
    return sgd_momentum(learning_rate, 0.8f, false);
}

static Optimizer *nesterov_momentum(float learning_rate)
{
    return sgd_momentum(learning_rate, 0.8f, true);
}

static Optimizer *rmsprop_with_momentum(float learning_rate)
{
    return rmsprop_momentum(learning_rate, 0.8f);
}

const NamedRule optimizer_rules[OPTIMIZER_RULES] = {
    {"SGD", sgd, exact_sgd},
    {"momentum", plain_momentum, exact_momentum},
    {"Nesterov", nesterov_momentum, exact_nesterov},
    {"Adam", adam, exact_adam},
    {"Adadelta", adadelta, exact_adadelta},
    {"Adagrad", adagrad, exact_adagrad},
    {"RMSprop", rmsprop, exact_rmsprop},
    {"RMSprop with momentum", rmsprop_with_momentum, exact_rmsprop_momentum},
};
