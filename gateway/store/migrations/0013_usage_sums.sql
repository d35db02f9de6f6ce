-- What each person, personality and model used over a long time is added up from this index alone, without a sort.
CREATE INDEX usage_days_by_spender ON usage_days (
    user_id, personality_id, model, day, turns, calls, input_tokens, output_tokens, cost_usd
);
