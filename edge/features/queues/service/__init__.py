"""Operations on queues as units of work: enqueue, dispatch, complete, unlock, requeue, diagnose."""
