def deadlock():
    return [["softirq", "put"]] * 1000
