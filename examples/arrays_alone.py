"""No model at hand, only arrays: embeddings, labels and, if there is one, the linear head that reads them.

    python examples/arrays_alone.py

The arrays may come from anywhere: another framework, a service, a file. Here they are the pixels of scikit-learn's
digits, taken as embeddings, with the head of a logistic regression that knows the digits 0 to 6: a toy, whose numbers
say nothing about your data. A few seconds.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from heat_ood import HEAT, Evaluation, Features, create, evaluate


def main() -> tuple[float, dict[str, Evaluation]]:
    # What you have: z (n, d), y (n,), W (classes, d), b (classes,), all of them plain numpy arrays.
    rng = np.random.default_rng(0)
    z, y = load_digits(return_X_y=True)
    known, unknown = rng.permutation(np.flatnonzero(y < 7)), np.flatnonzero(y >= 7)
    fitting, held_out, test = np.split(known, [600, 900])
    classifier = LogisticRegression(max_iter=1000).fit(z[fitting], y[fitting])
    head = (classifier.coef_, classifier.intercept_)

    # Labels are needed to fit, not to score. The logits follow from the embeddings and the head.
    train = Features(avg=z[fitting], labels=y[fitting], head=head)
    calibration = Features(avg=z[held_out], head=head)  # which the head was not trained on
    known_digits = Features(avg=z[test], head=head)
    ood = {
        "digits 7 to 9": Features(avg=z[unknown], head=head),
        "noise": Features(avg=rng.uniform(0, 16, (500, 64)), head=head),
    }
    print(train)

    # HEAT takes what there is and says what it does without: vectors have neither a std nor earlier layers.
    # residual=None composes the priors as they are, at once; HEAT() trains a network for seconds to correct one.
    detector = HEAT(residual=None).fit(train).calibrate(calibration)
    flagged = detector.predict(known_digits, fpr=0.05)  # True = out-of-distribution: exactly p_value <= 0.05
    false_alarms = flagged.double().mean().item()
    print(f"HEAT is made of {', '.join(detector.priors_)}.")
    print(f"It flags {false_alarms:.1%} of the known digits, where 5% were allowed on average.")
    print(f"The p-values of three unknown digits: {detector.p_value(ood['digits 7 to 9'][:3]).numpy().round(3)}")

    # Any other method by its name, in the same way. One that reads a single column takes plain arrays as well.
    knn = create("knn", k=10).fit(train).calibrate(z[held_out])
    print(f"Their distances to the tenth nearest neighbour: {knn.score(z[unknown[:3]]).round(3)}")

    # How well the scores tell known from unknown digits; intervals=True adds bootstrap intervals.
    results = {
        "HEAT": evaluate(detector, known_digits, ood, intervals=False),
        "knn": evaluate(knn, known_digits, ood, intervals=False),
    }
    for name, result in results.items():
        print(f"\n{name}: {result}")
    return false_alarms, results


if __name__ == "__main__":
    main()
