import numpy as np


def predict(points, threads):
    if len(points) < 2:
        raise ValueError("one point is not enough")
    n, x = np.array(points, dtype=float).T
    rows = np.stack([np.ones_like(n), n - 1, n * (n - 1)], axis=1)
    columns = [[0, 1, 2]] if len(points) > 2 else [[0, 1], [0, 2]]
    answers = []
    for some in columns:
        a = np.linalg.lstsq(rows[:, some], n / x, rcond=None)[0]
        row = np.array([1, threads - 1, threads * (threads - 1)])[some]
        answers.append(float(threads / (row @ a)))
    return sorted(answers * (2 // len(answers)))
