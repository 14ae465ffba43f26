def deadlock():
    return [
        ["umount", "unhook"],
        ["umount", "return"],
        ["rcu", "grace"],
        ["holder", "lock"],
        ["worker", "put"],
    ]
