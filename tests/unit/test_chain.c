// A chain of blocks (lab 10, recompute) that drop activations and compute them again.

#include "child.h"
#include "hvdlab.h"
#include "lessons/chain.h"
#include "normal_batch.h"
#include "operation.h"

enum { IMAGES = 8 };

static int chain_length;

static Model *create_block(int block)
{
    Tensor in = block == 0 ? input(28, 28, 1) : input_vector(20);
    Tensor x = block == 0 ? flatten(in) : in;
    if (block == chain_length - 1)
        return model(in, softmax(dense(x, 10)));
    return model(in, relu(dense(x, 20)));
}

static Chain *new_chain(int blocks)
{
    static Batch batch;
    seed_process(1);
    batch = normal_batch(IMAGES, 28, 1);
    chain_length = blocks;
    Chain *c = chain(blocks, create_block, 0.01f);
    chain_begin(c, &batch);
    return c;
}

static double train_chain(int blocks, bool drop, size_t *bytes)
{
    Chain *c = new_chain(blocks);
    Batch batch = normal_batch(IMAGES, 28, 1);
    for (int update = 0; update < 3; update++) {
        chain_begin(c, &batch);
        for (int b = 0; b < blocks; b++) {
            block_forward(c, b);
            if (drop && b % 2 == 1)
                block_drop(c, b - 1);
        }
        for (int b = blocks - 1; b >= 0; b--) {
            ck_assert(block_has_activations(c, b) || drop);
            if (!block_has_activations(c, b))
                block_forward(c, b);
            block_backward(c, b);
            if (drop)
                block_drop(c, b);
        }
        chain_update(c);
    }
    *bytes = chain_max_activations(c);
    double loss = chain_metrics(c).loss;
    ck_assert_double_eq(chain_metrics(c).images, 3 * IMAGES);
    chain_free(c);
    return loss;
}

// The loss of three updates, to the last bit; and that of one model with the same layers.
START_TEST(a_chain_that_computes_again_learns_the_same)
{
    size_t all, some;
    double kept = train_chain(_i, false, &all), dropped = train_chain(_i, true, &some);
    ck_assert_double_eq(kept, dropped);
    ck_assert(_i < 4 || some < all);

    seed_process(1);
    Tensor image = input(28, 28, 1), x = flatten(image);
    for (int b = 0; b < _i - 1; b++)
        x = relu(dense(x, 20));
    Model *whole =
        compile(model(image, softmax(dense(x, 10))), CATEGORICAL_CROSSENTROPY, adam(0.01f));
    Batch batch = normal_batch(IMAGES, 28, 1);
    for (int update = 0; update < 3; update++)
        train_on_batch(whole, &batch);
    ck_assert_double_eq_tol(model_metrics(whole).loss, kept, 1e-4 * kept);
    model_free(whole);
}
END_TEST

static void forward_all(Chain *c)
{
    for (int b = 0; b < chain_blocks(c); b++)
        block_forward(c, b);
}

static void forward_without_the_one_before(void)
{
    block_forward(new_chain(3), 1);
}

static void backward_from_the_first(void)
{
    Chain *c = new_chain(3);
    forward_all(c);
    block_backward(c, 0);
}

static void backward_of_dropped(void)
{
    Chain *c = new_chain(3);
    forward_all(c);
    block_drop(c, 2);
    block_backward(c, 2);
}

static void backward_twice(void)
{
    Chain *c = new_chain(3);
    forward_all(c);
    block_backward(c, 2);
    block_backward(c, 2);
}

static void drop_twice(void)
{
    Chain *c = new_chain(3);
    forward_all(c);
    block_drop(c, 1);
    block_drop(c, 1);
}

static void update_early(void)
{
    Chain *c = new_chain(3);
    forward_all(c);
    block_backward(c, 2);
    chain_update(c);
}

static void no_such_block(void)
{
    block_forward(new_chain(3), 3);
}

static void chain_without_batch(void)
{
    chain_length = 2;
    block_forward(chain(2, create_block, 0.1f), 0);
}

static Model *create_unfit(int block)
{
    Tensor in = block == 0 ? input(28, 28, 1) : input_vector(block == 2 ? 21 : 20);
    return model(in, relu(dense(block == 0 ? flatten(in) : in, 20)));
}

static void blocks_that_do_not_fit(void)
{
    chain(4, create_unfit, 0.1f);
}

static const RefusedCall mistakes[] = {
    {forward_without_the_one_before,
     "block 1 reads the activations of block 0, which are not there"},
    {backward_from_the_first, "block 0 needs the gradient of block 1"},
    {backward_of_dropped, "block_backward: the activations of block 2 are not there"},
    {backward_twice, "block 2 has its gradients for this batch already"},
    {drop_twice, "block_drop: block 1 has no activations"},
    {update_early, "chain_update: block 1 has no gradients yet"},
    {no_such_block, "block_forward: there is no block 3; the chain has 3, from 0"},
    {chain_without_batch, "block_forward: there is no batch; call chain_begin() before"},
    {blocks_that_do_not_fit, "chain: block 1 gives 20 numbers, and block 2 reads 21"},
};

START_TEST(a_mistake_ends_in_one_line)
{
    assert_call_refused(&mistakes[_i]);
}
END_TEST

int main(void)
{
    use_test_device();
    Suite *suite = suite_create("chain");
    TCase *chains = operation_case(suite, "chains");
    tcase_add_loop_test(chains, a_chain_that_computes_again_learns_the_same, 1, 8);
    tcase_add_loop_test(chains, a_mistake_ends_in_one_line, 0, COUNT(mistakes));
    return run_suite(suite);
}
