"""What fits where and how fast it will be: pure functions of facts about the machine, the model and the
settings.
"""
