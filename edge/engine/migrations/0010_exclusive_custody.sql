-- 1 if only the session that offered the message may ask for its delivery, because another session of the
-- account has used its msgId since.
ALTER TABLE custody ADD COLUMN exclusive INTEGER NOT NULL DEFAULT 0;
