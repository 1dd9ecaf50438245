"""The rules of the protocols, pure: functions of (state, event, now) that return decisions.

Nothing here knows a socket, a clock, SQL or XML, so that every state times every input is tested.
"""
