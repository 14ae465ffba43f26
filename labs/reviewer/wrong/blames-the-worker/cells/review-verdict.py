def verdict():
    return {"lost": "B", "deadlock": "A", "busy": "C"}
