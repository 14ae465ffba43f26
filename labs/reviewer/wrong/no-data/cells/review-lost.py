def lost():
    return {"lost": True, "patch": "B"}
